-- Wakeups of other processes (storage/engine/wakeups.py).

-- name: channel
-- Return the notification channel of this installation.
-- It depends on the schema, because other installations may use other schemas of the database. The schema is hashed,
-- because its name can be as long as a channel name.
SELECT 'heliograph_' || md5(current_schema())  --postgres
SELECT ''  --sqlite
;

-- name: notify
-- Notify other processes on PostgreSQL; processes of an SQLite file use pipes.
SELECT pg_notify('heliograph_' || md5(current_schema()), :text)  --postgres
SELECT :text  --sqlite
;
