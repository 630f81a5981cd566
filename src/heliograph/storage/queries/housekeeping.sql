-- Periodic work: what is over is put away, in small portions.

-- name: purge_idempotency
DELETE FROM idempotency WHERE expires_at <= :now;

-- name: purge_marketing
DELETE FROM marketing WHERE created_at <= :before;

-- name: ended_messages
SELECT key FROM message WHERE ended_at IS NOT NULL AND ended_at <= :before ORDER BY ended_at LIMIT :limit;

-- name: ended_with_content
SELECT m.key FROM message m JOIN content c ON c.message = m.key
WHERE m.ended_at IS NOT NULL AND m.ended_at <= :before LIMIT :limit;

-- name: purge_contents
DELETE FROM content WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: purge_blobs
DELETE FROM blob WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r) RETURNING hash;

-- name: blobs_in_use
SELECT DISTINCT b.hash FROM blob b JOIN rows(:hashes, hash text) AS r ON r.hash = b.hash;

-- name: purge_events
DELETE FROM event WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: purge_recipients
DELETE FROM recipient WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: purge_messages
DELETE FROM message WHERE key IN (SELECT message FROM rows(:messages, message bigint) AS r);
