-- Periodic work: what is over is put away, in small portions.

-- name: purge_idempotency
DELETE FROM idempotency WHERE expires_at <= :now;

-- name: purge_marketing
DELETE FROM marketing WHERE created_at <= :before;

-- name: ended_messages
SELECT key FROM message WHERE ended_at IS NOT NULL AND ended_at <= :before ORDER BY ended_at LIMIT :limit;

-- name: ended_with_body
SELECT key FROM message WHERE ended_at IS NOT NULL AND has_body = 1 AND ended_at <= :before
ORDER BY ended_at LIMIT :limit;

-- name: mark_bodiless
UPDATE message SET has_body = 0 WHERE key IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: purge_contents
DELETE FROM content WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: purge_blobs
DELETE FROM blob WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: blobs_in_use
SELECT DISTINCT b.hash FROM blob b JOIN rows(:hashes, hash text) AS r ON r.hash = b.hash;

-- name: purge_verifications
DELETE FROM verification WHERE key IN (SELECT key FROM verification WHERE created_at <= :before LIMIT :limit);

-- name: purge_lone_events
DELETE FROM event WHERE key IN (SELECT key FROM event WHERE message IS NULL AND created_at <= :before LIMIT :limit);

-- name: purge_events
DELETE FROM event WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: purge_parts
DELETE FROM part WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: purge_early_reports
DELETE FROM early_report WHERE created_at <= :before;

-- name: purge_recipients
DELETE FROM recipient WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: purge_messages
DELETE FROM message WHERE key IN (SELECT message FROM rows(:messages, message bigint) AS r);
