-- Reads on a PostgreSQL standby (storage/engine/standby.py). These queries do not run on SQLite.

-- name: log_position
-- Return the position up to which the primary's WAL is flushed, and the id of the database system.
SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint AS position, system_identifier  --postgres
FROM pg_control_system()                                                                          --postgres
SELECT 0 AS position, 0 AS system_identifier                                                      --sqlite
;

-- name: standby_position
-- Return the position up to which a standby has replayed the WAL (NULL if it is not a standby), and the id of the
-- database system.
SELECT CASE WHEN pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::bigint END AS position,  --postgres
       system_identifier                                                                                          --postgres
FROM pg_control_system()                                                                                          --postgres
SELECT NULL AS position, 0 AS system_identifier                                                                   --sqlite
;
