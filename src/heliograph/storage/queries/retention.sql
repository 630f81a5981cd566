-- Periodic work: what has expired is deleted, in small portions.

-- What is deleted by age alone. The age is asked twice where a row may be renewed: PostgreSQL asks the outer one again
-- after it waited for the one that renewed it.

-- name: purge_idempotency
DELETE FROM idempotency WHERE expires_at <= :before AND (key_id, hash) IN (
    SELECT key_id, hash FROM idempotency WHERE expires_at <= :before ORDER BY expires_at LIMIT :limit) RETURNING 1;

-- name: purge_marketing
DELETE FROM marketing WHERE key IN (
    SELECT key FROM marketing WHERE created_at <= :before ORDER BY created_at LIMIT :limit) RETURNING 1;

-- What a team keeps is looked for team by team along its index. `own` has the teams that keep it for a time of their
-- own: what happened up to `before` goes. CROSS: else SQLite reads the whole index and asks for each row's team.

-- name: ended_messages
-- With or without their content, as `has_body` says.
SELECT m.key FROM account a LEFT JOIN rows(:own, team bigint, before bigint) AS r ON r.team = a.team
CROSS JOIN message m INDEXED BY message_over ON m.team = a.team AND m.has_body = :has_body   --sqlite
    AND m.ended_at IS NOT NULL AND m.ended_at <= coalesce(r.before, :before)                 --sqlite
CROSS JOIN LATERAL (                                                                         --postgres
    SELECT i.key FROM message i WHERE i.team = a.team AND i.has_body = :has_body             --postgres
      AND i.ended_at IS NOT NULL AND i.ended_at <= coalesce(r.before, :before)               --postgres
    ORDER BY i.ended_at LIMIT :limit) AS m                                                   --postgres
LIMIT :limit;

-- name: lock_ended
-- Of these, those that an operator has not sent again meanwhile.
SELECT key FROM message
WHERE key IN (SELECT message FROM rows(:messages, message bigint) AS r) AND ended_at IS NOT NULL
ORDER BY key
FOR UPDATE  --postgres
;

-- name: mark_bodiless
UPDATE message SET has_body = 0 WHERE key IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: purge_contents
DELETE FROM content WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r) RETURNING shared;

-- name: lock_texts
-- Else two who drop the last two contents would each leave the text to the other.
SELECT key FROM shared_text WHERE key IN (SELECT key FROM rows(:texts, key bigint) AS r) ORDER BY key
FOR UPDATE  --postgres
;

-- name: purge_texts
DELETE FROM shared_text WHERE key IN (SELECT key FROM rows(:texts, key bigint) AS r)
  AND NOT EXISTS (SELECT 1 FROM content c WHERE c.shared = shared_text.key);

-- name: purge_blobs
DELETE FROM blob WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: blobs_in_use
SELECT DISTINCT b.hash FROM blob b JOIN rows(:hashes, hash text) AS r ON r.hash = b.hash;

-- name: blobs_received
SELECT DISTINCT x.raw FROM received x JOIN rows(:hashes, hash text) AS r ON r.hash = x.raw;

-- name: old_verifications
-- With when it was made: SQLite may give its key to another one before the next transaction.
SELECT v.key, v.created_at FROM account a LEFT JOIN rows(:own, team bigint, before bigint) AS r ON r.team = a.team
CROSS JOIN verification v INDEXED BY verification_by_age ON v.team = a.team          --sqlite
    AND v.created_at <= coalesce(r.before, :before)                            --sqlite
CROSS JOIN LATERAL (                                                           --postgres
    SELECT i.key, i.created_at FROM verification i                                          --postgres
    WHERE i.team = a.team AND i.created_at <= coalesce(r.before, :before)      --postgres
    ORDER BY i.created_at LIMIT :limit) AS v                                   --postgres
LIMIT :limit;

-- name: verifications_added
SELECT v.team, v.id, v.added FROM rows(:old, key bigint, created_at bigint) AS r
JOIN verification v ON v.key = r.key AND v.created_at = r.created_at
WHERE v.added <> '{}';

-- name: purge_verifications
DELETE FROM verification WHERE (key, created_at) IN (
    SELECT key, created_at FROM rows(:old, key bigint, created_at bigint) AS r);

-- name: old_lone_events
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
DELETE FROM event WHERE message IS NULL AND (key, created_at) IN (
    SELECT key, created_at FROM rows(:old, key bigint, created_at bigint) AS r);

-- name: old_batches
SELECT b.id FROM account a LEFT JOIN rows(:own, team bigint, before bigint) AS r ON r.team = a.team
CROSS JOIN batch b INDEXED BY batch_over ON b.team = a.team AND b.done_at IS NOT NULL   --sqlite
    AND b.done_at <= coalesce(r.before, :before)                               --sqlite
CROSS JOIN LATERAL (                                                           --postgres
    SELECT i.id FROM batch i WHERE i.team = a.team AND i.done_at IS NOT NULL   --postgres
      AND i.done_at <= coalesce(r.before, :before)                             --postgres
    ORDER BY i.done_at LIMIT :limit) AS b                                      --postgres
LIMIT :limit;

-- name: purge_batches
DELETE FROM batch WHERE id IN (SELECT id FROM rows(:old, id text) AS r);

-- name: purge_events
DELETE FROM event WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: purge_parts
DELETE FROM part WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: purge_delays
DELETE FROM delay WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: purge_early_reports
DELETE FROM early_report WHERE key IN (
    SELECT key FROM early_report WHERE created_at <= :before ORDER BY created_at LIMIT :limit) RETURNING 1;

-- name: purge_early_returns
DELETE FROM early_return WHERE key IN (
    SELECT key FROM early_return WHERE created_at <= :before ORDER BY created_at LIMIT :limit) RETURNING 1;

-- name: purge_callbacks_seen
DELETE FROM callback_seen WHERE (carrier, id) IN (
    SELECT carrier, id FROM callback_seen WHERE created_at <= :before ORDER BY created_at LIMIT :limit) RETURNING 1;

-- name: purge_absent
DELETE FROM absent_domain WHERE (team, domain) IN (
    SELECT team, domain FROM absent_domain WHERE last_at <= :before ORDER BY last_at LIMIT :limit) RETURNING 1;

-- name: purge_recipients
DELETE FROM recipient WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: records_of
SELECT m.team, m.id, m.record FROM rows(:messages, message bigint) AS r JOIN message m ON m.key = r.message;

-- name: delete_tags
DELETE FROM tag WHERE (team, tag, id) IN (SELECT team, tag, id FROM rows(:tags, team bigint, tag bigint, id text) AS r);

-- name: purge_callbacks
DELETE FROM callback WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: keep_last_key
-- What is still to come of a deleted message must not meet a new one with its key; PostgreSQL never gives one again.
INSERT INTO counter (name, next) SELECT 'message', coalesce(max(key), 0) FROM message WHERE true  --sqlite
ON CONFLICT (name) DO UPDATE SET next = max(next, excluded.next)                                  --sqlite
SELECT 1 WHERE false                                                                              --postgres
;

-- name: purge_messages
DELETE FROM message WHERE key IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: space
-- PostgreSQL gives it back by autovacuum.
SELECT p.page_count, f.freelist_count FROM pragma_page_count() AS p, pragma_freelist_count() AS f  --sqlite
SELECT 0, 0                                                                                        --postgres
;

-- name: free_pages
PRAGMA incremental_vacuum(100)  --sqlite
SELECT 0 WHERE false            --postgres
;
