-- Verifications: start, dispatch, check. Codes are not stored, only their keyed digests.

-- name: phone_starts
-- Return the recent verifications of phones, for velocity limits.
SELECT v.team, v.phone, v.created_at, v.wrong, v.resent FROM rows(:phones, team bigint, phone text, since bigint) AS r
JOIN verification v ON v.team = r.team AND v.phone = r.phone AND v.created_at > r.since
ORDER BY v.created_at;

-- name: prefix_starts
-- Return the recent verifications of phone prefixes, for velocity limits.
SELECT v.team, v.prefix, v.created_at, v.resent FROM rows(:prefixes, team bigint, prefix text, since bigint) AS r
JOIN verification v ON v.team = r.team AND v.prefix = r.prefix AND v.created_at > r.since
ORDER BY v.created_at;

-- name: known_phones
-- Return the phones that completed a verification since the given time.
SELECT DISTINCT v.team, v.phone FROM rows(:phones, team bigint, phone text, after bigint) AS r
JOIN verification v ON v.team = r.team AND v.phone = r.phone AND v.created_at > r.after AND v.status = 'verified';

-- name: conversion
-- Return the conversion counters of areas per hour.
SELECT c.team, c.place, c.hour, c.starts, c.verified FROM rows(:areas, team bigint, place text, after bigint) AS r
JOIN conversion c ON c.team = r.team AND c.place = r.place AND c.hour > r.after;

-- name: count_conversion
-- Add started and completed verifications to the counters per area and hour.
INSERT INTO conversion (team, place, hour, starts, verified)
SELECT team, place, hour, starts, verified
FROM rows(:counts, team bigint, place text, hour bigint, starts bigint, verified bigint) AS r
WHERE true
ON CONFLICT (team, place, hour) DO UPDATE SET starts = conversion.starts + excluded.starts,
                                              verified = conversion.verified + excluded.verified;

-- name: purge_conversion
-- Delete a batch of old counters.
DELETE FROM conversion WHERE (team, place, hour) IN (
    SELECT team, place, hour FROM conversion WHERE hour <= :before ORDER BY hour LIMIT :limit) RETURNING 1;

-- name: insert_verifications
-- Insert pending verifications, owned by the process that sends the code.
INSERT INTO verification (id, team, key_id, phone, given, prefix, channels, channel, magic, sandbox, status, wrong, salt,
                          digest, price, charge, owner, lease_until, created_at, expires_at, added)
SELECT id, team, key_id, phone, given, prefix, channels, channel, magic, sandbox, 'pending', 0, salt, digest, price,
       charge, owner, lease_until, created_at, expires_at, added
FROM rows(:verifications, id text, team bigint, key_id text, phone text, given text, prefix text, channels text,
          channel text, magic smallint, sandbox smallint, salt text, digest text, price bigint, charge text, owner text,
          lease_until bigint, created_at bigint, expires_at bigint, added text) AS r;

-- name: lock_verifications
-- Lock and return verifications, in key order.
SELECT v.team, v.id, v.status, v.wrong, v.salt, v.digest, v.expires_at, v.price, v.charge, v.owner,
       v.phone, v.given, v.channel, v.sandbox, v.lease_until, v.sent, v.added, v.key_id
FROM verification v
WHERE (v.team, v.id) IN (SELECT r.team, r.id FROM rows(:ids, team bigint, id text) AS r)
ORDER BY v.key
FOR UPDATE  --postgres
;

-- name: finish_verifications
-- Record the result of sending a code, and release the lease.
UPDATE verification SET status = r.status, error_message = r.error_message, charge = r.charge, owner = NULL,
                        lease_until = NULL, simulated = r.simulated, channel = r.channel, sent = r.sent,
                        next_at = r.next_at, carrier = r.carrier, carrier_id = r.carrier_id
FROM rows(:rows, team bigint, id text, status text, error_message text, charge text, simulated smallint, channel text,
          sent smallint, next_at bigint, carrier text, carrier_id text) AS r
WHERE verification.team = r.team AND verification.id = r.id;

-- name: update_checked
-- Record the result of checking a code.
UPDATE verification SET status = r.status, wrong = r.wrong,
                        next_at = CASE WHEN r.status = 'pending' THEN verification.next_at END
FROM rows(:rows, team bigint, id text, status text, wrong bigint) AS r
WHERE verification.team = r.team AND verification.id = r.id;

-- name: resend_verification
-- Take the lease of a verification for sending its code again, and record the time.
UPDATE verification SET owner = :owner, lease_until = :lease_until, resent = trim(resent || ' ' || :at)
WHERE team = :team AND id = :id;

-- name: cancel_verification
-- Mark a verification as canceled.
UPDATE verification SET status = 'failed', reason = 'canceled', error_message = :error, next_at = NULL WHERE team = :team AND id = :id;

-- name: any_code_due
-- Return a row if a verification is due for its next channel.
-- `moved`: teams with a test clock, with their time.
SELECT 1 FROM verification v LEFT JOIN rows(:moved, team bigint, now bigint) AS r ON r.team = v.team
WHERE v.next_at IS NOT NULL AND v.next_at <= coalesce(r.now, :now) AND v.owner IS NULL LIMIT 1;

-- name: claim_codes
-- Claim verifications that are due for their next channel, because the last one failed or sent no receipt in time.
WITH picked AS MATERIALIZED (
    SELECT v.key FROM verification v LEFT JOIN rows(:moved, team bigint, now bigint) AS r ON r.team = v.team
    WHERE v.next_at IS NOT NULL AND v.next_at <= coalesce(r.now, :now) AND v.owner IS NULL
    ORDER BY v.next_at LIMIT :limit
    FOR UPDATE OF v SKIP LOCKED  --postgres
)
UPDATE verification SET owner = :owner, lease_until = :lease_until
WHERE owner IS NULL AND key IN (SELECT p.key FROM picked p)
RETURNING team, id, key_id, phone, coalesce(given, phone), channel, channels, expires_at, sandbox, added;

-- name: record_receipts
-- Set when the next channel is due, after a receipt; return the known carrier message ids.
UPDATE verification SET next_at = r.next_at
FROM rows(:receipts, carrier_id text, next_at bigint) AS r
WHERE verification.carrier = :carrier AND verification.carrier_id = r.carrier_id AND verification.next_at IS NOT NULL
RETURNING verification.carrier_id;

-- name: abandoned_verifications
-- Return verifications whose process crashed while sending the code.
SELECT team, id FROM verification WHERE owner IS NOT NULL AND (lease_until <= :over OR owner = :owner) LIMIT 100;

-- name: release_verifications
-- Release the leases of verifications.
UPDATE verification SET owner = NULL, lease_until = NULL
WHERE (team, id) IN (SELECT r.team, r.id FROM rows(:ids, team bigint, id text) AS r);

-- name: expire_verifications
-- Mark a batch of pending verifications as expired.
-- The status is compared twice, because PostgreSQL evaluates the outer condition again after it waited for a check.
UPDATE verification SET status = 'expired', next_at = NULL
WHERE status = 'pending'
  AND key IN (SELECT key FROM verification
              WHERE status = 'pending' AND owner IS NULL AND expires_at <= :now LIMIT 500)
RETURNING key;

-- name: delete_unfinished_idempotency
-- Delete the unfinished idempotency keys of an owner, after its restart.
DELETE FROM idempotency WHERE owner = :owner AND status IS NULL;
