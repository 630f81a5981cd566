-- The clock that all processes share: leases run by it, and wall clocks are held against it.

-- name: shared_clock
-- PostgreSQL gives its time, and no boot. SQLite has no clock, but its processes share the count of their machine.
SELECT NULL, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint), NULL  --postgres
SELECT boot, ahead, seen FROM machine_clock  --sqlite
;

-- name: set_machine_clock
INSERT INTO machine_clock (one, boot, ahead, seen) VALUES (1, :boot, :ahead, :seen)
ON CONFLICT (one) DO UPDATE SET boot = excluded.boot, ahead = excluded.ahead, seen = excluded.seen;
