-- A message waits for approval as long as it has rows in the queue `approval`. The table `approval` has decisions only,
-- so its index of pending rows stays empty.
DELETE FROM approval WHERE status = 'pending';
CREATE INDEX outbox_approval ON outbox (message) WHERE lane = 'approval';
