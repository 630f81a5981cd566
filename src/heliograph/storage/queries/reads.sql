-- What the API reads. Every query carries the team. Public ids are ordered by time.

-- name: find_message
SELECT key, status, record FROM message WHERE team = :team AND id = :id;

-- name: message_recipients
SELECT given, kind, status, updated_at, carrier, detail FROM recipient WHERE message = :message ORDER BY position;

-- name: message_events
SELECT id, type, recipient, status, previous_status, message_status, sequence, detail, created_at
FROM event WHERE message = :message ORDER BY key;

-- name: list_messages
-- `address` walks the team's messages, newest first: an index on addresses would cost every accept (ADR 0002).
SELECT m.status, m.record FROM message m
WHERE m.team = :team AND m.id > :low AND m.id < :high
  AND (CAST(:status AS text) IS NULL OR m.status = :status)
  AND (CAST(:template_id AS text) IS NULL OR m.template_id = :template_id)
  AND m.created_at > :created_after AND m.created_at < :created_before
  AND (CAST(:address AS text) IS NULL
       OR EXISTS (SELECT 1 FROM recipient r WHERE r.message = m.key AND r.address = :address))
ORDER BY m.id DESC LIMIT :limit;

-- name: list_verifications
-- A pending one past its time is expired, whether or not housekeeping has written it down.
SELECT id, phone, CASE WHEN status = 'pending' AND expires_at <= :now THEN 'expired' ELSE status END,
       sandbox, wrong, price, charge, error_message, key_id, created_at, expires_at, simulated
FROM verification
WHERE team = :team AND id > :low AND id < :high
  AND (CAST(:status AS text) IS NULL
       OR CASE WHEN status = 'pending' AND expires_at <= :now THEN 'expired' ELSE status END = :status)
  AND (CAST(:address AS text) IS NULL OR phone = :address)
  AND created_at > :created_after AND created_at < :created_before
ORDER BY id DESC LIMIT :limit;

-- name: find_suppression
SELECT email, reason, source_message_id, detail, created_at FROM suppression
WHERE team = :team AND address = :address;

-- name: list_suppressions
-- Newest first; `after` is the address that the page before ended with.
SELECT s.email, s.reason, s.source_message_id, s.detail, s.created_at FROM suppression s
WHERE s.team = :team
  AND (CAST(:after AS text) IS NULL
       OR (s.created_at, s.address) < (SELECT a.created_at, a.address FROM suppression a
                                       WHERE a.team = :team AND a.address = :after))
ORDER BY s.created_at DESC, s.address DESC LIMIT :limit;

-- name: delete_suppression
DELETE FROM suppression WHERE team = :team AND address = :address RETURNING email, reason, source_message_id;
