-- What the API reads. Every query carries the team. Public ids are ordered by time.

-- name: find_message
SELECT key, status, created_at, record FROM message WHERE team = :team AND id = :id;

-- name: find_whole_message
-- A row for each recipient; the first has the record.
SELECT m.key, m.status, CASE WHEN r.position = 0 THEN m.record END,
    r.given, r.kind, r.status, r.updated_at, r.carrier, r.detail
FROM message m JOIN recipient r ON r.message = m.key
WHERE m.team = :team AND m.id = :id ORDER BY r.position;

-- name: message_recipients
SELECT given, kind, status, updated_at, carrier, detail FROM recipient WHERE message = :message ORDER BY position;

-- name: message_events
SELECT id, type, recipient, status, previous_status, message_status, sequence, detail, created_at
FROM event WHERE message = :message ORDER BY key;

-- name: find_suppression
SELECT email, reason, source_message_id, detail, created_at FROM suppression
WHERE team = :team AND address = :address;

-- name: find_suppressions
SELECT s.address, s.reason, s.created_at, s.team FROM rows(:addresses, team bigint, address text) AS r
JOIN suppression s ON s.team = r.team AND s.address = r.address;

-- name: list_suppressions
-- Newest first; the page before ended with the one of this time and address.
SELECT email, reason, source_message_id, detail, created_at FROM suppression
WHERE team = :team AND (created_at, address) < (:at, :before)
ORDER BY created_at DESC, address DESC LIMIT :limit;

-- name: delete_suppression
DELETE FROM suppression WHERE team = :team AND address = :address RETURNING email, reason, source_message_id, detail, created_at;

-- name: place_of_deleted
-- When one was made that is no longer on the list: a page may have ended with it.
SELECT detail FROM event WHERE team = :team AND subject = :address AND type = 'suppression.deleted'
ORDER BY id DESC LIMIT 1;
