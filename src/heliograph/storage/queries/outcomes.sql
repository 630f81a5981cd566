-- Recording of outcomes and reports: state, money, events, suppressions and the next attempt in one transaction.

-- name: fence
-- Lock and return the claims among these that the caller still holds, or that were freed and not claimed again.
-- `claims` is 0 once an outcome of the claim is recorded.
-- `|| ''` keeps SQLite from using the index on owner, with which it would read all our claims for each row.
SELECT o.key, o.epoch FROM rows(:claims, key bigint, epoch bigint) AS r
JOIN outbox o ON o.key = r.key AND o.epoch = r.epoch
 AND (o.owner || '' = :owner OR (o.owner IS NULL AND o.claims > 0))
FOR UPDATE OF o  --postgres
;

-- name: fence_claimed_again
-- Lock and return lost claims whose message is still queued under a later claim.
SELECT r.key, r.epoch FROM rows(:claims, key bigint, epoch bigint, message bigint, position smallint) AS r
JOIN outbox o ON o.key = r.key AND o.epoch > r.epoch AND o.message = r.message AND o.position = r.position
 AND o.promises IS NULL
FOR UPDATE OF o  --postgres
;

-- name: fence_unclaimed
-- Lock and return the rows among these that are unclaimed and unchanged.
SELECT o.key, o.epoch FROM rows(:claims, key bigint, epoch bigint) AS r
JOIN outbox o ON o.key = r.key AND o.epoch = r.epoch AND o.owner IS NULL
FOR UPDATE OF o SKIP LOCKED  --postgres
;

-- name: recipients_by_carrier_id
-- Return the recipients with these carrier message ids.
-- For a join instead of IN, SQLite would read all rows of the carrier and look up each in the ids.
SELECT r.carrier_id, r.message, r.position FROM recipient r
WHERE r.carrier = :carrier AND r.carrier_id IN (SELECT carrier_id FROM rows(:ids, carrier_id text) AS i)
ORDER BY r.message;

-- name: event_details_of
-- Return status and detail of the events of messages.
SELECT e.message, e.status, e.detail FROM rows(:messages, message bigint) AS r JOIN event e ON e.message = r.message;

-- name: parts_by_carrier_id
-- Return the SMS parts with these carrier message ids.
SELECT p.carrier_id, p.message, p.position, p.number FROM part p
WHERE p.carrier = :carrier AND p.carrier_id IN (SELECT carrier_id FROM rows(:ids, carrier_id text) AS i);

-- name: parts_of
-- Return the states of all SMS parts of recipients.
SELECT p.message, p.position, p.status FROM rows(:places, message bigint, position smallint) AS r
JOIN part p ON p.message = r.message AND p.position = r.position
ORDER BY p.message, p.position, p.number;

-- name: insert_parts
-- Insert SMS parts; if a carrier reuses an id, the newest message gets the id.
INSERT INTO part (carrier, carrier_id, message, position, number)
SELECT carrier, carrier_id, message, position, number
FROM rows(:parts, carrier text, carrier_id text, message bigint, position smallint, number smallint) AS r
WHERE true
ON CONFLICT (carrier, carrier_id) DO UPDATE SET message = excluded.message, position = excluded.position,
                                                number = excluded.number, status = NULL;

-- name: update_parts
-- Set the states of SMS parts; only unknown and failed states can change.
UPDATE part SET status = r.status
FROM rows(:parts, carrier text, carrier_id text, status text) AS r
WHERE part.carrier = r.carrier AND part.carrier_id = r.carrier_id
  AND (part.status IS NULL OR part.status = 'failed');

-- name: insert_early_reports
-- Store delivery reports that arrived before the carrier message id was recorded.
INSERT INTO early_report (carrier, carrier_id, report, created_at)
SELECT carrier, carrier_id, report, created_at
FROM rows(:reports, carrier text, carrier_id text, report text, created_at bigint) AS r;

-- name: any_early_report
-- Return a row if an early delivery report is stored.
SELECT 1 FROM early_report WHERE created_at > :since LIMIT 1;

-- name: pop_early_reports
-- Delete and return early delivery reports whose carrier message id is now known.
-- count(*) is used instead of EXISTS, for which PostgreSQL may read all recipients.
DELETE FROM early_report WHERE created_at > :since AND 0 < (
    (SELECT count(*) FROM recipient r WHERE r.carrier = early_report.carrier AND r.carrier_id = early_report.carrier_id)
    + (SELECT count(*) FROM part p WHERE p.carrier = early_report.carrier AND p.carrier_id = early_report.carrier_id)
    + (SELECT count(*) FROM verification v WHERE v.next_at IS NOT NULL
       AND v.carrier = early_report.carrier AND v.carrier_id = early_report.carrier_id)
)
RETURNING key, carrier, carrier_id, report;

-- name: find_recipient
-- Return a recipient by message id and position.
-- The caller does not know the team, and the index on ids begins with the team, so all accounts are tried. CROSS JOIN
-- keeps SQLite from starting with the messages.
SELECT m.key, r.carrier_id, r.address FROM account a
CROSS JOIN message m ON m.team = a.team AND m.id = :id  --sqlite
JOIN message m ON m.team = a.team AND m.id = :id        --postgres
JOIN recipient r ON r.message = m.key AND r.position = :position;

-- name: messages_by_id
-- Return the keys of messages by id, without knowing the team (see find_recipient).
SELECT m.id, m.key FROM rows(:ids, id text) AS i
CROSS JOIN account a
CROSS JOIN message m ON m.team = a.team AND m.id = i.id  --sqlite
JOIN message m ON m.team = a.team AND m.id = i.id        --postgres
;

-- name: recipient_event_details
-- Return recipient, status and detail of the events of messages.
SELECT e.message, e.recipient, e.status, e.detail
FROM rows(:messages, message bigint) AS r JOIN event e ON e.message = r.message;

-- name: insert_callback_seen
-- Record a carrier callback; returns no row if the callback was already processed.
INSERT INTO callback_seen (carrier, id, created_at) VALUES (:carrier, :id, :created_at)
ON CONFLICT (carrier, id) DO NOTHING RETURNING 1;

-- name: delete_callback_seen
-- Delete the record of a callback, so that it can be processed again.
DELETE FROM callback_seen WHERE carrier = :carrier AND id = :id;

-- name: early_return_at
-- Return the stored bounce of a recipient that arrived before the send was recorded.
SELECT report FROM early_return WHERE message = :message AND position = :position;

-- name: record_absent_domains
-- Record that domains do not exist, and return when each was first reported without a gap of :kept.
INSERT INTO absent_domain (team, domain, first_at, last_at)
SELECT r.team, r.domain, r.at, r.at FROM rows(:rows, team bigint, domain text, at bigint) AS r
WHERE true
ON CONFLICT (team, domain) DO UPDATE SET
    first_at = CASE WHEN absent_domain.last_at < excluded.last_at - :kept
                    THEN excluded.first_at ELSE absent_domain.first_at END,
    last_at = excluded.last_at
RETURNING team, domain, first_at;

-- name: insert_early_return
-- Store a bounce that arrived before the send was recorded.
INSERT INTO early_return (message, position, report, created_at) VALUES (:message, :position, :report, :created_at)
ON CONFLICT (message, position) DO NOTHING;

-- name: any_early_return
-- Return a row if a stored early bounce can now be processed.
SELECT 1 FROM early_return e JOIN recipient r ON r.message = e.message AND r.position = e.position
WHERE e.created_at > :since AND r.carrier_id IS NOT NULL LIMIT 1;

-- name: pop_early_returns
-- Delete and return early bounces whose send is now recorded.
DELETE FROM early_return WHERE created_at > :since AND EXISTS (
    SELECT 1 FROM recipient r
    WHERE r.message = early_return.message AND r.position = early_return.position AND r.carrier_id IS NOT NULL
)
RETURNING message, position, report;

-- name: lock_messages
-- Lock and return messages, in key order.
SELECT key, id, team, channel, status, sandbox, price, charge, sequence, turn, created_at, batch, key_id, template_id,
       category
FROM message
WHERE key IN (SELECT message FROM rows(:messages, message bigint) AS r)
ORDER BY key
FOR UPDATE  --postgres
;

-- name: recipients_of
-- Return the recipients of messages.
SELECT r.message, r.position, r.address, r.given, r.status, r.late, r.carrier, r.carrier_id, r.detail
FROM rows(:messages, message bigint) AS p
JOIN recipient r ON r.message = p.message
ORDER BY r.message, r.position;

-- name: update_messages
-- Write back status, charge, sequence and end of messages.
UPDATE message SET status = r.status, charge = r.charge, sequence = r.sequence, ended_at = r.ended_at
FROM rows(:messages, key bigint, status text, charge text, sequence bigint, ended_at bigint) AS r
WHERE message.key = r.key;

-- name: update_recipients
-- Write back status, carrier and detail of recipients.
UPDATE recipient SET status = r.status, updated_at = r.updated_at, late = r.late, carrier = r.carrier,
                     carrier_id = r.carrier_id, detail = r.detail
FROM rows(:recipients, message bigint, position smallint, status text, updated_at bigint, late smallint,
          carrier text, carrier_id text, detail text) AS r
WHERE recipient.message = r.message AND recipient.position = r.position;

-- name: insert_suppressions
-- Insert suppressions and return the new ones.
INSERT INTO suppression (team, address, email, reason, source_message_id, detail, created_at)
SELECT team, address, email, reason, source_message_id, detail, created_at
FROM rows(:suppressions, team bigint, address text, email text, reason text, source_message_id text, detail text,
          created_at bigint) AS r
WHERE true
ON CONFLICT (team, address) DO NOTHING
RETURNING team, address;

-- name: delete_outbox
-- Delete rows of the queue.
DELETE FROM outbox WHERE key IN (SELECT key FROM rows(:keys, key bigint) AS r);

-- name: schedule_simulated_report
-- Turn the queue row of a sent message, or of a simulated report, into the row of the next simulated report.
UPDATE outbox SET owner = NULL, lease_until = NULL, claims = 0, alone = 0, attempt = 0, deferrals = '{}', uncertain = NULL,
                  absent_at = NULL, expires_at = NULL, held_at = NULL, lane = r.lane, promises = r.promises,
                  due_at = r.due_at, first_at = r.first_at
FROM rows(:promises, key bigint, lane text, promises text, due_at bigint, first_at bigint) AS r
WHERE outbox.key = r.key;

-- name: schedule_retry
-- Release claims and set the next attempt with its counters.
UPDATE outbox SET owner = NULL, lease_until = NULL, claims = 0, alone = 0, attempt = r.attempt, due_at = r.due_at,
                  deferrals = r.deferrals, uncertain = r.uncertain, absent_at = r.absent_at, held_at = r.held_at,
                  first_at = coalesce(r.first_at, outbox.first_at)
FROM rows(:rows, key bigint, due_at bigint, attempt bigint, deferrals text, uncertain text, absent_at bigint,
          first_at bigint, held_at bigint) AS r
WHERE outbox.key = r.key;
