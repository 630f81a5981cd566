-- Hints to other processes (storage/engine/wakeups.py).

-- name: channel
-- The installation's own: others may be in other schemas of the database. The name of a schema may be as long as a channel's.
SELECT 'heliograph_' || md5(current_schema())  --postgres
SELECT ''  --sqlite
;

-- name: notify
-- Processes of an SQLite file have pipes for it.
SELECT pg_notify('heliograph_' || md5(current_schema()), :text)  --postgres
SELECT :text  --sqlite
;
