-- Recording outcomes and reports: state, money, events, suppressions and the next attempt in one transaction.

-- name: fence
-- Of the claims that a worker reports on, those that are still its own, or were freed and not claimed again since.
-- `claims` is 0 once an outcome of the claim is recorded.
-- `|| ''` keeps SQLite from the index on owner: it would read all our claims for each one (100 claims: 20 times slower).
SELECT o.key, o.epoch FROM rows(:claims, key bigint, epoch bigint) AS r
JOIN outbox o ON o.key = r.key AND o.epoch = r.epoch
 AND (o.owner || '' = :owner OR (o.owner IS NULL AND o.claims > 0))
FOR UPDATE OF o  --postgres
;

-- name: fence_claimed_again
-- Of the claims that were lost, those whose message is still to be sent by whoever claimed it since.
SELECT r.key, r.epoch FROM rows(:claims, key bigint, epoch bigint, message bigint, position smallint) AS r
JOIN outbox o ON o.key = r.key AND o.epoch > r.epoch AND o.message = r.message AND o.position = r.position
 AND o.promises IS NULL
FOR UPDATE OF o  --postgres
;

-- name: fence_unclaimed
SELECT o.key, o.epoch FROM rows(:claims, key bigint, epoch bigint) AS r
JOIN outbox o ON o.key = r.key AND o.epoch = r.epoch AND o.owner IS NULL
FOR UPDATE OF o SKIP LOCKED  --postgres
;

-- name: places_by_carrier_id
-- IN, not a join: SQLite would read all that the carrier ever had, and look for each in the ids.
SELECT r.carrier_id, r.message, r.position FROM recipient r
WHERE r.carrier = :carrier AND r.carrier_id IN (SELECT carrier_id FROM rows(:ids, carrier_id text) AS i)
ORDER BY r.message;

-- name: told_of
SELECT e.message, e.status, e.detail FROM rows(:messages, message bigint) AS r JOIN event e ON e.message = r.message;

-- name: parts_by_carrier_id
SELECT p.carrier_id, p.message, p.position, p.number FROM part p
WHERE p.carrier = :carrier AND p.carrier_id IN (SELECT carrier_id FROM rows(:ids, carrier_id text) AS i);

-- name: parts_of
SELECT p.message, p.position, p.status FROM rows(:places, message bigint, position smallint) AS r
JOIN part p ON p.message = r.message AND p.position = r.position
ORDER BY p.message, p.position, p.number;

-- name: insert_parts
-- A carrier may count its ids from the beginning again: the newest message has it.
INSERT INTO part (carrier, carrier_id, message, position, number)
SELECT carrier, carrier_id, message, position, number
FROM rows(:parts, carrier text, carrier_id text, message bigint, position smallint, number smallint) AS r
WHERE true
ON CONFLICT (carrier, carrier_id) DO UPDATE SET message = excluded.message, position = excluded.position,
                                                number = excluded.number, status = NULL;

-- name: update_parts
UPDATE part SET status = r.status
FROM rows(:parts, carrier text, carrier_id text, status text) AS r
WHERE part.carrier = r.carrier AND part.carrier_id = r.carrier_id
  AND (part.status IS NULL OR part.status = 'failed');

-- name: insert_early_reports
INSERT INTO early_report (carrier, carrier_id, report, created_at)
SELECT carrier, carrier_id, report, created_at
FROM rows(:reports, carrier text, carrier_id text, report text, created_at bigint) AS r;

-- name: any_early_report
SELECT 1 FROM early_report WHERE created_at > :since LIMIT 1;

-- name: take_early_reports
-- Counted, since PostgreSQL may answer EXISTS by reading all recipients.
DELETE FROM early_report WHERE created_at > :since AND 0 < (
    (SELECT count(*) FROM recipient r WHERE r.carrier = early_report.carrier AND r.carrier_id = early_report.carrier_id)
    + (SELECT count(*) FROM part p WHERE p.carrier = early_report.carrier AND p.carrier_id = early_report.carrier_id)
    + (SELECT count(*) FROM verification v WHERE v.next_at IS NOT NULL
       AND v.carrier = early_report.carrier AND v.carrier_id = early_report.carrier_id)
)
RETURNING key, carrier, carrier_id, report;

-- name: place_of
-- A recipient by its message's id: the team is not known to who asks, and the index on ids begins with it. SQLite
-- would walk through the messages first.
SELECT m.key, r.carrier_id, r.address FROM account a
CROSS JOIN message m ON m.team = a.team AND m.id = :id  --sqlite
JOIN message m ON m.team = a.team AND m.id = :id        --postgres
JOIN recipient r ON r.message = m.key AND r.position = :position;

-- name: messages_by_id
-- As `place_of`, for many.
SELECT m.id, m.key FROM rows(:ids, id text) AS i
CROSS JOIN account a
CROSS JOIN message m ON m.team = a.team AND m.id = i.id  --sqlite
JOIN message m ON m.team = a.team AND m.id = i.id        --postgres
;

-- name: told_to
SELECT e.message, e.recipient, e.status, e.detail
FROM rows(:messages, message bigint) AS r JOIN event e ON e.message = r.message;

-- name: insert_callback_seen
INSERT INTO callback_seen (carrier, id, created_at) VALUES (:carrier, :id, :created_at)
ON CONFLICT (carrier, id) DO NOTHING RETURNING 1;

-- name: delete_callback_seen
DELETE FROM callback_seen WHERE carrier = :carrier AND id = :id;

-- name: early_return_at
SELECT report FROM early_return WHERE message = :message AND position = :position;

-- name: note_absent
-- When each domain was first said not to exist, without a pause of :kept in between.
INSERT INTO absent_domain (team, domain, first_at, last_at)
SELECT r.team, r.domain, r.at, r.at FROM rows(:told, team bigint, domain text, at bigint) AS r
WHERE true
ON CONFLICT (team, domain) DO UPDATE SET
    first_at = CASE WHEN absent_domain.last_at < excluded.last_at - :kept
                    THEN excluded.first_at ELSE absent_domain.first_at END,
    last_at = excluded.last_at
RETURNING team, domain, first_at;

-- name: insert_early_return
INSERT INTO early_return (message, position, report, created_at) VALUES (:message, :position, :report, :created_at)
ON CONFLICT (message, position) DO NOTHING;

-- name: any_early_return
SELECT 1 FROM early_return e JOIN recipient r ON r.message = e.message AND r.position = e.position
WHERE e.created_at > :since AND r.carrier_id IS NOT NULL LIMIT 1;

-- name: take_early_returns
DELETE FROM early_return WHERE created_at > :since AND EXISTS (
    SELECT 1 FROM recipient r
    WHERE r.message = early_return.message AND r.position = early_return.position AND r.carrier_id IS NOT NULL
)
RETURNING message, position, report;

-- name: lock_messages
SELECT key, id, team, channel, status, sandbox, price, charge, sequence, turn, created_at, batch
FROM message
WHERE key IN (SELECT message FROM rows(:messages, message bigint) AS r)
ORDER BY key
FOR UPDATE  --postgres
;

-- name: recipients_of
SELECT r.message, r.position, r.address, r.given, r.status, r.late, r.carrier, r.carrier_id, r.detail
FROM rows(:messages, message bigint) AS p
JOIN recipient r ON r.message = p.message
ORDER BY r.message, r.position;

-- name: update_messages
UPDATE message SET status = r.status, charge = r.charge, sequence = r.sequence, ended_at = r.ended_at
FROM rows(:messages, key bigint, status text, charge text, sequence bigint, ended_at bigint) AS r
WHERE message.key = r.key;

-- name: update_recipients
UPDATE recipient SET status = r.status, updated_at = r.updated_at, late = r.late, carrier = r.carrier,
                     carrier_id = r.carrier_id, detail = r.detail
FROM rows(:recipients, message bigint, position smallint, status text, updated_at bigint, late smallint,
          carrier text, carrier_id text, detail text) AS r
WHERE recipient.message = r.message AND recipient.position = r.position;

-- name: insert_suppressions
INSERT INTO suppression (team, address, email, reason, source_message_id, detail, created_at)
SELECT team, address, email, reason, source_message_id, detail, created_at
FROM rows(:suppressions, team bigint, address text, email text, reason text, source_message_id text, detail text,
          created_at bigint) AS r
WHERE true
ON CONFLICT (team, address) DO NOTHING
RETURNING team, address;

-- name: delete_outbox
DELETE FROM outbox WHERE key IN (SELECT key FROM rows(:keys, key bigint) AS r);

-- name: promise
-- What was handed over, or one of its reports, becomes the work of the next report.
UPDATE outbox SET owner = NULL, lease_until = NULL, claims = 0, alone = 0, attempt = 0, deferrals = '{}', uncertain = NULL,
                  absent_at = NULL, expires_at = NULL, held_at = NULL, lane = r.lane, promises = r.promises,
                  due_at = r.due_at, first_at = r.first_at
FROM rows(:promises, key bigint, lane text, promises text, due_at bigint, first_at bigint) AS r
WHERE outbox.key = r.key;

-- name: postpone
UPDATE outbox SET owner = NULL, lease_until = NULL, claims = 0, alone = 0, attempt = r.attempt, due_at = r.due_at,
                  deferrals = r.deferrals, uncertain = r.uncertain, absent_at = r.absent_at, held_at = r.held_at,
                  first_at = coalesce(r.first_at, outbox.first_at)
FROM rows(:rows, key bigint, due_at bigint, attempt bigint, deferrals text, uncertain text, absent_at bigint,
          first_at bigint, held_at bigint) AS r
WHERE outbox.key = r.key;
