-- When DNS first said that the recipient's domain does not exist: it counts once it is said again 15 minutes later.
ALTER TABLE outbox ADD COLUMN absent_at BIGINT;
