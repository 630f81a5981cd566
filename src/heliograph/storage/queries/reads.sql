-- Reads of the API. Every query is limited to one team. Public ids are ordered by time.

-- name: find_message
-- Return a message by id.
SELECT key, status, created_at, record FROM message WHERE team = :team AND id = :id;

-- name: find_whole_message
-- Return a message with one row per recipient; only the first row contains the record.
SELECT m.key, m.status, CASE WHEN r.position = 0 THEN m.record END,
    r.given, r.kind, r.status, r.updated_at, r.carrier, r.detail
FROM message m JOIN recipient r ON r.message = m.key
WHERE m.team = :team AND m.id = :id ORDER BY r.position;

-- name: message_recipients
-- Return the recipients of a message.
SELECT given, kind, status, updated_at, carrier, detail FROM recipient WHERE message = :message ORDER BY position;

-- name: message_events
-- Return the timeline of a message, oldest first.
SELECT id, type, recipient, status, previous_status, message_status, sequence, detail, created_at
FROM event WHERE message = :message ORDER BY key;

-- name: find_suppression
-- Return the suppression of an address.
SELECT email, reason, source_message_id, detail, created_at FROM suppression
WHERE team = :team AND address = :address;

-- name: find_suppressions
-- Return the suppressions among these (team, address) pairs.
SELECT s.address, s.reason, s.created_at, s.team FROM rows(:addresses, team bigint, address text) AS r
JOIN suppression s ON s.team = r.team AND s.address = r.address;

-- name: list_suppressions
-- Return a page of suppressions, newest first, after the last row (time, address) of the previous page.
SELECT email, reason, source_message_id, detail, created_at FROM suppression
WHERE team = :team AND (created_at, address) < (:at, :before)
ORDER BY created_at DESC, address DESC LIMIT :limit;

-- name: delete_suppression
-- Delete and return the suppression of an address.
DELETE FROM suppression WHERE team = :team AND address = :address RETURNING email, reason, source_message_id, detail, created_at;

-- name: deleted_suppression
-- Return the data of the last deleted suppression of an address, to which a cursor may refer.
SELECT detail FROM event WHERE team = :team AND subject = :address AND type = 'suppression.deleted'
ORDER BY id DESC LIMIT 1;
