-- The clock that all processes share: leases use it, and wall clocks are compared with it.

-- name: shared_clock
-- Return the shared clock as (boot, time or offset, last confirmation).
-- PostgreSQL returns its own time without a boot id. SQLite has no clock, but its processes share the monotonic time of
-- their machine.
SELECT NULL, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint), NULL  --postgres
SELECT boot, ahead, seen FROM machine_clock  --sqlite
;

-- name: set_machine_clock
-- Set the shared clock of an SQLite file.
INSERT INTO machine_clock (one, boot, ahead, seen) VALUES (1, :boot, :ahead, :seen)
ON CONFLICT (one) DO UPDATE SET boot = excluded.boot, ahead = excluded.ahead, seen = excluded.seen;
