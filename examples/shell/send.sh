#!/usr/bin/env bash
# Send an email and wait until it has ended. Needs curl and jq.
#   HELIOGRAPH_URL=http://127.0.0.1:8025 HELIOGRAPH_KEY=hk_… ./send.sh ada@example.com "Backup done" "All is well."
set -euo pipefail
to=$1 subject=$2 text=$3

ask() { curl -sS --fail-with-body --retry 3 -H "Authorization: Bearer $HELIOGRAPH_KEY" "$@"; }

# The same key for the same mail: curl's retries, and a second run within 24 hours, send nothing twice.
once=$(printf '%s\n' "$to" "$subject" "$text" | sha256sum | cut -c1-32)
id=$(jq -n --arg from "${HELIOGRAPH_FROM:-}" --arg to "$to" --arg subject "$subject" --arg text "$text" \
      '{$to, $subject, $text} + (if $from == "" then {} else {$from} end)' |
    ask "$HELIOGRAPH_URL/v1/emails" -H "Content-Type: application/json" -H "Idempotency-Key: $once" -d @- | jq -r .id)

for _ in $(seq 30); do
    status=$(ask "$HELIOGRAPH_URL/v1/emails/$id" | jq -r .status)
    case $status in queued | sending | sent) sleep 1 ;; *) break ;; esac
done
echo "$id $status"
[ "$status" = delivered ] || [ "$status" = sent ]
