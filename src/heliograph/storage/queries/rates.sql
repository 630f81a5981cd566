-- Requests allowed by each API process, for rate limits that apply across all processes.

-- name: lock_usage_exchange
-- Serialise the exchange of counters on PostgreSQL; SQLite has a single writer.
-- Two processes that write at the same time would not see each other's counters.
SELECT pg_advisory_xact_lock(7240002, hashtext(current_schema()));  --postgres
SELECT 1;  --sqlite

-- name: save_usage
-- Write the request counters of this process; the row with the empty key shows that the process is running.
INSERT INTO spent (process, key, requests, told_at)
SELECT process, key, requests, told_at
FROM rows(:spent, process text, key text, requests bigint, told_at bigint) AS r WHERE true ORDER BY process, key
ON CONFLICT (process, key) DO UPDATE SET requests = excluded.requests, told_at = excluded.told_at;

-- name: usage_of_others
-- Return the recent request counters of the other processes.
SELECT process, key, requests FROM spent WHERE process <> :process AND told_at > :since;

-- name: purge_usage
-- Delete a batch of old counters.
DELETE FROM spent WHERE told_at <= :before AND (process, key) IN (
    SELECT process, key FROM spent WHERE told_at <= :before ORDER BY told_at LIMIT :limit) RETURNING 1;
