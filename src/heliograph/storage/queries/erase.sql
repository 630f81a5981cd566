-- Erases an address from a team's rows: scans the rows in batches and changes those that contain the address.
-- A `scan_` query returns the rows of a batch that may contain the address, and the last row of the batch, after which
-- the next batch begins. Columns: row key, texts to change, further columns for exports.
-- The rows of an `erase_` query include the column of their owner (such as the team), which SQLite needs to find them.

-- name: mark_erased
-- Mark the account as having erased addresses; this also locks the account row.
UPDATE account SET erased = 1 WHERE team = :team RETURNING team;

-- The outbox has no index on message, which would slow down every accept, so the queries below read the team's rows.

-- name: count_queued_messages
-- Return the number of queued or claimed messages to the address.
WITH queue AS (
    SELECT o.message FROM rows(:lanes, lane text) AS l
    JOIN outbox o ON o.lane = l.lane AND o.team = :team AND o.owner IS NULL
    UNION ALL
    SELECT message FROM outbox WHERE owner IS NOT NULL AND team = :team
)
SELECT count(DISTINCT q.message) FROM queue q JOIN recipient r ON r.message = q.message AND r.address = :address;

-- name: count_pending_verifications
-- Return the number of pending verifications of the address.
SELECT count(*) FROM verification
INDEXED BY verification_by_phone  --sqlite
WHERE team = :team AND phone = :address AND status = 'pending' AND (owner IS NOT NULL OR expires_at > :now);

-- name: count_running_imports
-- Return the number of running suppression imports of the team.
SELECT count(*) FROM suppression_import WHERE team = :team AND ended_at IS NULL;

-- name: erase_marketing
-- Delete the marketing sends to the address.
DELETE FROM marketing WHERE team = :team AND address = :address;

-- name: erase_opt_outs
-- Replace the phone number of opt-outs by its hash.
UPDATE opt_out SET phone = :name WHERE team = :team AND phone = :address;

-- name: erase_unsubscribes
-- Replace the address of unsubscribes by its hash, except in categories that already have an entry with the hash.
UPDATE unsubscribe SET address = :name WHERE team = :team AND address = :address
    AND category NOT IN (SELECT u.category FROM unsubscribe u WHERE u.team = :team AND u.address = :name);

-- name: scan_marketing
-- Return a batch of marketing sends to the address.
SELECT key, created_at FROM marketing WHERE team = :team AND address = :address AND key > :after
ORDER BY key LIMIT :limit;

-- name: scan_messages
-- Return a batch of message ids with a flag that shows whether the message may contain the address.
-- count(*) is used instead of EXISTS, for which PostgreSQL would read all recipients.
WITH seen AS (
    SELECT key, id, record FROM message WHERE team = :team AND id > :after ORDER BY id LIMIT :limit
), found AS MATERIALIZED (
    SELECT s.id, (SELECT count(*) FROM recipient r WHERE r.message = s.key AND r.address = :address) > 0 OR EXISTS (
        SELECT 1 FROM rows(:needles, needle text) AS n LEFT JOIN whole_content c ON c.message = s.key
        WHERE instr(lower(s.record), n.needle) > 0 OR instr(lower(c.body), n.needle) > 0    --sqlite
        WHERE strpos(lower(s.record), n.needle) > 0 OR strpos(lower(c.body), n.needle) > 0  --postgres
    ) AS hit
    FROM seen s
)
SELECT id, hit FROM found WHERE hit OR id = (SELECT max(id) FROM seen) ORDER BY id;

-- name: lock_erased
-- Lock messages and return their records and contents.
-- CROSS JOIN keeps SQLite from reading all messages of the team.
SELECT m.key, m.record, c.body FROM rows(:ids, id text) AS r
CROSS JOIN message m ON m.team = :team AND m.id = r.id  --sqlite
JOIN message m ON m.team = :team AND m.id = r.id        --postgres
LEFT JOIN whole_content c ON c.message = m.key
ORDER BY m.key
FOR UPDATE OF m  --postgres
;

-- name: find_queued_messages
-- Return the messages among these that are queued or claimed.
WITH wanted AS (SELECT message FROM rows(:messages, message bigint) AS r)
SELECT o.message FROM rows(:lanes, lane text) AS l
JOIN outbox o ON o.lane = l.lane AND o.team = :team AND o.owner IS NULL
WHERE o.message IN (SELECT message FROM wanted)
UNION
SELECT message FROM outbox
WHERE owner IS NOT NULL AND team = :team AND message IN (SELECT message FROM wanted);

-- name: events_of
-- Return the events of messages.
SELECT e.key, e.id, e.subject, e.recipient, e.detail, e.message FROM rows(:messages, message bigint) AS r
JOIN event e ON e.message = r.message;

-- name: erase_records
-- Replace the records of messages.
UPDATE message SET record = r.record FROM rows(:records, key bigint, record text) AS r WHERE message.key = r.key;

-- name: finish_erased
-- Mark messages as final and return their batches.
UPDATE message SET ended_at = :now
WHERE ended_at IS NULL AND key IN (SELECT message FROM rows(:messages, message bigint) AS r)
RETURNING batch;

-- name: erase_recipients
-- Replace address and detail of recipients.
UPDATE recipient SET address = r.address, given = r.given, detail = r.detail
FROM rows(:recipients, message bigint, position smallint, address text, given text, detail text) AS r
WHERE recipient.message = r.message AND recipient.position = r.position;

-- name: erase_recipient_index
-- Delete the address from the recipient search index.
DELETE FROM seen_recipient WHERE (span, team, address, message) IN (
    SELECT message >> 12, CAST(:team AS bigint), CAST(:address AS text), message
    FROM rows(:messages, message bigint) AS r);

-- name: scan_suppressions
-- Return a batch of suppressions whose detail may contain the address.
-- A bounce of several recipients can contain the address in the detail of another suppressed address.
batch(suppression WHERE team = :team | address | detail | reason, created_at);

-- name: erase_suppressions
-- Replace the details of suppressions.
UPDATE suppression SET detail = r.detail FROM rows(:rows, team bigint, address text, detail text) AS r
WHERE suppression.team = r.team AND suppression.address = r.address;

-- name: scan_events
-- Return a batch of events that may contain the address.
batch(event WHERE team = :team | id | subject, recipient, detail | type, created_at, key);

-- name: erase_events
-- Replace the texts of events.
UPDATE event SET subject = r.subject, recipient = r.recipient, detail = r.detail
FROM rows(:events, id text, key bigint, subject text, recipient text, detail text) AS r
WHERE event.key = r.key AND event.id = r.id;

-- name: erase_deliveries
-- Replace the subject of webhook deliveries.
-- A waiting delivery is changed as by a replay, so that an attempt in progress, which contains the address, records
-- nothing.
UPDATE delivery SET subject = r.subject,
                    attempt = CASE WHEN state = 'waiting' THEN attempt + 1 ELSE attempt END,
                    earlier = CASE WHEN state = 'waiting' THEN attempt + 1 ELSE earlier END
FROM rows(:deliveries, key bigint, subject text) AS r
WHERE delivery.key = r.key;

-- name: clear_delivery_responses
-- Clear the webhooks' responses to deliveries.
UPDATE attempt SET answer = '' WHERE delivery IN (SELECT key FROM rows(:deliveries, key bigint, subject text) AS r);

-- name: scan_verifications
-- Return a batch of verifications of the address.
SELECT key, id, CASE WHEN status = 'pending' AND expires_at <= :now THEN 'expired' ELSE status END,
       coalesce(given, phone), channels, resent, wrong, error_message, added, created_at, expires_at
FROM verification
INDEXED BY verification_by_phone  --sqlite
WHERE team = :team AND phone = :address AND key > :after ORDER BY key LIMIT :limit;

-- name: options_of_address
-- Return the optional fields of the address's verifications, for deleting their tags.
SELECT team, id, added FROM verification WHERE team = :team AND phone = :address AND added <> '{}';

-- name: erase_verifications
-- Replace the address by a placeholder in a batch of finished verifications.
UPDATE verification SET phone = :stand_in, given = NULL, prefix = '', error_message = NULL, added = '{}'
WHERE key IN (SELECT key FROM verification
              WHERE team = :team AND phone = :address
                AND (status <> 'pending' OR (owner IS NULL AND expires_at <= :now)) LIMIT :limit)
RETURNING key;

-- name: scan_idempotency
-- Return a batch of stored responses that may contain the address.
batch(idempotency WHERE key_id = :key_id | hash | response | status, expires_at);

-- name: erase_idempotency
-- Replace stored responses.
UPDATE idempotency SET response = r.response FROM rows(:rows, key_id text, hash text, response text) AS r
WHERE idempotency.key_id = r.key_id AND idempotency.hash = r.hash;

-- name: scan_audit
-- Return a batch of the team's audit entries that may contain the address.
batch(audit WHERE team = :team_id | key | subject, detail | action, at);

-- name: scan_instance_audit
-- Return a batch of audit entries without a team that may contain the address.
batch(audit WHERE team IS NULL | key | subject, detail | action, at);

-- name: scan_versions
-- Return a batch of template versions that may contain the address.
batch(template_version WHERE template = :template | version | body | template, at);

-- name: erase_versions
-- Replace the bodies of template versions.
UPDATE template_version SET body = r.body FROM rows(:rows, template text, version bigint, body text) AS r
WHERE template_version.template = r.template AND template_version.version = r.version;

-- name: scan_refused_requests
-- Return a batch of refused requests whose message may contain the address.
batch(request_log WHERE team = :team AND refused = 1 | id | message | route, status, code, at);

-- name: erase_refused_requests
-- Replace the messages of refused requests.
UPDATE request_log SET message = r.message FROM rows(:rows, team bigint, id text, message text) AS r
WHERE request_log.id = r.id;

-- name: scan_imports
-- Return a batch of the team's imports with their first skipped lines.
SELECT i.id, i.first_left, i.created_at FROM suppression_import i
WHERE i.team = :team AND i.id > :after ORDER BY i.id LIMIT :limit;

-- name: erase_imports
-- Replace the skipped lines of imports.
UPDATE suppression_import SET first_left = r.first_left FROM rows(:rows, team bigint, id text, first_left text) AS r
WHERE suppression_import.id = r.id;

-- name: scan_import_batches
-- Return batches of import lines that may contain the address.
batch(import_portion WHERE import_id = :import_id | number | lines |);

-- name: erase_import_batches
-- Replace the lines of import batches.
UPDATE import_portion SET lines = r.lines FROM rows(:rows, import_id text, number bigint, lines text) AS r
WHERE import_portion.import_id = r.import_id AND import_portion.number = r.number;

-- name: scan_early_reports
-- Return a batch of early delivery reports; these belong to no team and are kept for one minute.
SELECT key, report, created_at FROM early_report WHERE key > :after ORDER BY key LIMIT :limit;

-- name: erase_early_reports
-- Replace early delivery reports, matched by key and text.
-- SQLite may have reused the key for another report since it was read.
UPDATE early_report SET report = r.report FROM rows(:rows, key bigint, seen text, report text) AS r
WHERE early_report.key = r.key AND early_report.report = r.seen;

-- name: scan_early_bounces
-- Return a batch of early bounce reports, which are kept for one hour.
SELECT key, report, created_at FROM early_return WHERE key > :after ORDER BY key LIMIT :limit;

-- name: erase_early_bounces
-- Replace early bounce reports, matched by key and text.
UPDATE early_return SET report = r.report FROM rows(:rows, key bigint, seen text, report text) AS r
WHERE early_return.key = r.key AND early_return.report = r.seen;

-- name: delete_recipient_tombstone
-- Delete the tombstone of a removed sandbox recipient, because its id contains the address.
DELETE FROM setting WHERE kind = 'recipient' AND id = :id AND body IS NULL;
