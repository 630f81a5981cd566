-- Retention: periodic deletion of expired data in small batches.

-- Rows that are deleted by age only. The age is checked twice if a row can be renewed: PostgreSQL checks the outer
-- condition again after waiting for a transaction that renewed the row.

-- name: purge_idempotency
-- Delete a batch of expired idempotency keys.
DELETE FROM idempotency WHERE expires_at <= :before AND (key_id, hash) IN (
    SELECT key_id, hash FROM idempotency WHERE expires_at <= :before ORDER BY expires_at LIMIT :limit) RETURNING 1;

-- name: purge_marketing
-- Delete a batch of old marketing sends.
DELETE FROM marketing WHERE key IN (
    SELECT key FROM marketing WHERE created_at <= :before ORDER BY created_at LIMIT :limit) RETURNING 1;

-- Data with a retention per team is read team by team along an index. `own`: teams with their own retention; data up to
-- `before` is deleted. CROSS JOIN keeps SQLite from reading the whole index and looking up the team of each row.

-- name: ended_messages
-- Return a batch of final messages whose retention has ended, with or without content (`has_body`).
SELECT m.key FROM account a LEFT JOIN rows(:own, team bigint, before bigint) AS r ON r.team = a.team
CROSS JOIN message m INDEXED BY message_over ON m.team = a.team AND m.has_body = :has_body   --sqlite
    AND m.ended_at IS NOT NULL AND m.ended_at <= coalesce(r.before, :before)                 --sqlite
CROSS JOIN LATERAL (                                                                         --postgres
    SELECT i.key FROM message i WHERE i.team = a.team AND i.has_body = :has_body             --postgres
      AND i.ended_at IS NOT NULL AND i.ended_at <= coalesce(r.before, :before)               --postgres
    ORDER BY i.ended_at LIMIT :limit) AS m                                                   --postgres
LIMIT :limit;

-- name: lock_ended
-- Lock and return the messages among these that are still final, because an operator may have retried some.
SELECT key FROM message
WHERE key IN (SELECT message FROM rows(:messages, message bigint) AS r) AND ended_at IS NOT NULL
ORDER BY key
FOR UPDATE  --postgres
;

-- name: mark_content_deleted
-- Mark messages as having no content.
UPDATE message SET has_body = 0 WHERE key IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: purge_contents
-- Delete the contents of messages and return their shared texts.
DELETE FROM content WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r) RETURNING shared;

-- name: lock_texts
-- Lock shared texts before purge_texts: two transactions that delete the last two contents of a text would otherwise
-- both leave the text to the other.
SELECT key FROM shared_text WHERE key IN (SELECT key FROM rows(:texts, key bigint) AS r) ORDER BY key
FOR UPDATE  --postgres
;

-- name: purge_texts
-- Delete shared texts that no content uses.
DELETE FROM shared_text WHERE key IN (SELECT key FROM rows(:texts, key bigint) AS r)
  AND NOT EXISTS (SELECT 1 FROM content c WHERE c.shared = shared_text.key);

-- name: purge_blobs
-- Unlink attachment files from messages.
DELETE FROM blob WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: blobs_in_use
-- Return the hashes among these that messages use.
SELECT DISTINCT b.hash FROM blob b JOIN rows(:hashes, hash text) AS r ON r.hash = b.hash;

-- name: blobs_of_inbound_mail
-- Return the hashes among these that inbound emails use.
SELECT DISTINCT x.raw FROM received x JOIN rows(:hashes, hash text) AS r ON r.hash = x.raw;

-- name: old_verifications
-- Return a batch of verifications whose retention has ended.
-- Includes created_at, because SQLite may reuse the key before the next transaction.
SELECT v.key, v.created_at FROM account a LEFT JOIN rows(:own, team bigint, before bigint) AS r ON r.team = a.team
CROSS JOIN verification v INDEXED BY verification_by_age ON v.team = a.team          --sqlite
    AND v.created_at <= coalesce(r.before, :before)                            --sqlite
CROSS JOIN LATERAL (                                                           --postgres
    SELECT i.key, i.created_at FROM verification i                                          --postgres
    WHERE i.team = a.team AND i.created_at <= coalesce(r.before, :before)      --postgres
    ORDER BY i.created_at LIMIT :limit) AS v                                   --postgres
LIMIT :limit;

-- name: options_of_verifications
-- Return the optional fields of verifications, for deleting their tags.
SELECT v.team, v.id, v.added FROM rows(:old, key bigint, created_at bigint) AS r
JOIN verification v ON v.key = r.key AND v.created_at = r.created_at
WHERE v.added <> '{}';

-- name: purge_verifications
-- Delete verifications by key and creation time.
DELETE FROM verification WHERE (key, created_at) IN (
    SELECT key, created_at FROM rows(:old, key bigint, created_at bigint) AS r);

-- name: old_lone_events
-- Return a batch of events without a message whose retention has ended.
SELECT e.key, e.created_at FROM account a LEFT JOIN rows(:own, team bigint, before bigint) AS r ON r.team = a.team
CROSS JOIN event e INDEXED BY event_alone ON e.team = a.team AND e.message IS NULL   --sqlite
    AND e.created_at <= coalesce(r.before, :before)                            --sqlite
CROSS JOIN LATERAL (                                                           --postgres
    SELECT i.key, i.created_at FROM event i                                    --postgres
    WHERE i.team = a.team AND i.message IS NULL                                --postgres
      AND i.created_at <= coalesce(r.before, :before)                          --postgres
    ORDER BY i.created_at LIMIT :limit) AS e                                   --postgres
LIMIT :limit;

-- name: purge_lone_events
-- Delete events without a message by key and creation time.
DELETE FROM event WHERE message IS NULL AND (key, created_at) IN (
    SELECT key, created_at FROM rows(:old, key bigint, created_at bigint) AS r);

-- name: old_batches
-- Return up to `limit` finished batches whose retention has ended.
SELECT b.id FROM account a LEFT JOIN rows(:own, team bigint, before bigint) AS r ON r.team = a.team
CROSS JOIN batch b INDEXED BY batch_over ON b.team = a.team AND b.done_at IS NOT NULL   --sqlite
    AND b.done_at <= coalesce(r.before, :before)                               --sqlite
CROSS JOIN LATERAL (                                                           --postgres
    SELECT i.id FROM batch i WHERE i.team = a.team AND i.done_at IS NOT NULL   --postgres
      AND i.done_at <= coalesce(r.before, :before)                             --postgres
    ORDER BY i.done_at LIMIT :limit) AS b                                      --postgres
LIMIT :limit;

-- name: purge_batches
-- Delete batches.
DELETE FROM batch WHERE id IN (SELECT id FROM rows(:old, id text) AS r);

-- name: purge_events
-- Delete the events of messages.
DELETE FROM event WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: purge_parts
-- Delete the SMS parts of messages.
DELETE FROM part WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: purge_delays
-- Delete the delays of messages.
DELETE FROM delay WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: purge_early_reports
-- Delete a batch of old early delivery reports.
DELETE FROM early_report WHERE key IN (
    SELECT key FROM early_report WHERE created_at <= :before ORDER BY created_at LIMIT :limit) RETURNING 1;

-- name: purge_early_returns
-- Delete a batch of old early bounces.
DELETE FROM early_return WHERE key IN (
    SELECT key FROM early_return WHERE created_at <= :before ORDER BY created_at LIMIT :limit) RETURNING 1;

-- name: purge_callbacks_seen
-- Delete a batch of old records of processed callbacks.
DELETE FROM callback_seen WHERE (carrier, id) IN (
    SELECT carrier, id FROM callback_seen WHERE created_at <= :before ORDER BY created_at LIMIT :limit) RETURNING 1;

-- name: purge_absent
-- Delete a batch of old reports of absent domains.
DELETE FROM absent_domain WHERE (team, domain) IN (
    SELECT team, domain FROM absent_domain WHERE last_at <= :before ORDER BY last_at LIMIT :limit) RETURNING 1;

-- name: purge_recipients
-- Delete the recipients of messages.
DELETE FROM recipient WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: records_of
-- Return the records of messages.
SELECT m.team, m.id, m.record FROM rows(:messages, message bigint) AS r JOIN message m ON m.key = r.message;

-- name: delete_tags
-- Delete tags.
DELETE FROM tag WHERE (team, tag, id) IN (SELECT team, tag, id FROM rows(:tags, team bigint, tag bigint, id text) AS r);

-- name: purge_callbacks
-- Delete the callback URLs of messages.
DELETE FROM callback WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: save_last_message_key
-- Store the greatest message key before messages are deleted, so that SQLite does not reuse it.
-- A late report on a deleted message must not match a new message; PostgreSQL never reuses a key.
INSERT INTO counter (name, next) SELECT 'message', coalesce(max(key), 0) FROM message WHERE true  --sqlite
ON CONFLICT (name) DO UPDATE SET next = max(next, excluded.next)                                  --sqlite
SELECT 1 WHERE false                                                                              --postgres
;

-- name: purge_messages
-- Delete messages.
DELETE FROM message WHERE key IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: page_counts
-- Return the total and free pages of an SQLite file; PostgreSQL frees space by autovacuum.
SELECT p.page_count, f.freelist_count FROM pragma_page_count() AS p, pragma_freelist_count() AS f  --sqlite
SELECT 0, 0                                                                                        --postgres
;

-- name: free_pages
-- Return up to 100 free pages of an SQLite file to the file system.
PRAGMA incremental_vacuum(100)  --sqlite
SELECT 0 WHERE false            --postgres
;
