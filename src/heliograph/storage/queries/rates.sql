-- Requests that each API process has let through, for rate limits that hold over all of them.

-- name: take_turns
-- Two processes that told at the same moment would not hear of each other. SQLite has one writer.
SELECT pg_advisory_xact_lock(7240002, hashtext(current_schema()));  --postgres
SELECT 1;  --sqlite

-- name: tell_spent
-- The row with the empty key says that the process lives.
INSERT INTO spent (process, key, requests, told_at)
SELECT process, key, requests, told_at
FROM rows(:spent, process text, key text, requests bigint, told_at bigint) AS r WHERE true ORDER BY process, key
ON CONFLICT (process, key) DO UPDATE SET requests = excluded.requests, told_at = excluded.told_at;

-- name: hear_spent
SELECT process, key, requests FROM spent WHERE process <> :process AND told_at > :since;

-- name: purge_spent
DELETE FROM spent WHERE told_at <= :before AND (process, key) IN (
    SELECT process, key FROM spent WHERE told_at <= :before ORDER BY told_at LIMIT :limit) RETURNING 1;
