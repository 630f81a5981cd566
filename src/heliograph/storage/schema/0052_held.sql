-- When a send was due that waits for a reason on our own side: it is sent before later ones.
ALTER TABLE outbox ADD COLUMN held_at BIGINT;
CREATE INDEX outbox_held ON outbox (lane, due_at) WHERE held_at IS NOT NULL AND owner IS NULL;
