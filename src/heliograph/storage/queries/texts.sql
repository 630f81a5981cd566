-- Inbound SMS and WhatsApp messages.

-- name: insert_received_texts
-- Record inbound texts; return those that are new or were last recorded longer than :again ago.
INSERT INTO received_text (carrier, carrier_id, created_at)
SELECT carrier, carrier_id, created_at FROM rows(:texts, carrier text, carrier_id text, created_at bigint) AS r
WHERE true
ON CONFLICT (carrier, carrier_id) DO UPDATE SET created_at = excluded.created_at
WHERE received_text.created_at < excluded.created_at - :again
RETURNING carrier_id;

-- name: purge_received_texts
-- Delete a batch of old records of inbound texts.
DELETE FROM received_text WHERE (carrier, carrier_id) IN (
    SELECT carrier, carrier_id FROM received_text WHERE created_at <= :before ORDER BY created_at LIMIT :limit)
RETURNING 1;

-- name: record_last_senders
-- Record the team that last sent to a phone on a channel.
INSERT INTO last_writer (phone, channel, team, created_at)
SELECT phone, channel, team, created_at
FROM rows(:writers, phone text, channel text, team bigint, created_at bigint) AS r
WHERE true
ON CONFLICT (phone, channel) DO UPDATE SET team = excluded.team, created_at = excluded.created_at;

-- name: last_senders
-- Return the teams that last sent to these phones since a time.
SELECT w.phone, w.team FROM rows(:phones, phone text, channel text) AS r
JOIN last_writer w ON w.phone = r.phone AND w.channel = r.channel AND w.created_at > :since;

-- name: purge_last_senders
-- Delete a batch of old records of last senders.
DELETE FROM last_writer WHERE (phone, channel) IN (
    SELECT phone, channel FROM last_writer WHERE created_at <= :before ORDER BY created_at LIMIT :limit)
RETURNING 1;

-- name: erase_last_sender
-- Delete the record that a team last sent to a phone.
DELETE FROM last_writer WHERE phone = :address AND team = :team;

-- name: record_auto_reply
-- Record an automatic reply; returns no row if the same reply was sent to the phone after :since.
INSERT INTO text_answer (team, phone, channel, word, created_at) VALUES (:team, :phone, :channel, :word, :at)
ON CONFLICT (team, phone, channel, word) DO UPDATE SET created_at = excluded.created_at
WHERE text_answer.created_at <= :since
RETURNING word;

-- name: purge_auto_replies
-- Delete a batch of old records of automatic replies.
DELETE FROM text_answer WHERE (team, phone, channel, word) IN (
    SELECT team, phone, channel, word FROM text_answer WHERE created_at <= :before ORDER BY created_at LIMIT :limit)
RETURNING 1;

-- name: erase_auto_replies
-- Delete the records of automatic replies to a phone.
DELETE FROM text_answer WHERE team = :team AND phone = :address;

-- name: lock_split_texts
-- Insert missing rows of multipart texts and lock all of these rows.
-- The parts of a text may arrive at two processes at the same time.
INSERT INTO split_text (id, carrier, sender, recipient, reference, total, parts, started_at)
SELECT id, carrier, sender, recipient, reference, total, '{}', started_at
FROM rows(:texts, id text, carrier text, sender text, recipient text, reference text, total int, started_at bigint) AS r
WHERE true
ON CONFLICT (id) DO UPDATE SET id = excluded.id
RETURNING id, parts, started_at, finished_at;

-- name: update_split_texts
-- Write back the parts of multipart texts.
UPDATE split_text SET parts = r.parts, started_at = r.started_at, finished_at = r.finished_at
FROM rows(:texts, id text, parts text, started_at bigint, finished_at bigint) AS r WHERE split_text.id = r.id;

-- name: any_incomplete_text
-- Return a row if a multipart text has been incomplete since a time.
SELECT 1 FROM split_text WHERE finished_at IS NULL AND started_at <= :before LIMIT 1;

-- name: finish_incomplete_texts
-- Finish and return a batch of incomplete multipart texts.
-- The condition is repeated for a row that another process finishes at the same time.
UPDATE split_text SET finished_at = :now WHERE finished_at IS NULL AND id IN (
    SELECT id FROM split_text WHERE finished_at IS NULL AND started_at <= :before ORDER BY started_at LIMIT :limit)
RETURNING carrier, sender, recipient, reference, total, parts, started_at;

-- name: purge_split_texts
-- Delete a batch of finished multipart texts.
DELETE FROM split_text WHERE id IN (
    SELECT id FROM split_text WHERE finished_at <= :before ORDER BY finished_at LIMIT :limit)
RETURNING 1;
