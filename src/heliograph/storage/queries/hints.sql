-- Hints to other processes (storage/engine/hints.py).

-- name: notify
-- Processes of an SQLite file have pipes for it.
SELECT pg_notify('heliograph', :text)  --postgres
SELECT :text  --sqlite
;
