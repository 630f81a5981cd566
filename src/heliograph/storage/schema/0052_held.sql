-- Original due time of a message that waits for a reason on our side; such messages are sent before later ones.
ALTER TABLE outbox ADD COLUMN held_at BIGINT;
CREATE INDEX outbox_held ON outbox (lane, due_at) WHERE held_at IS NOT NULL AND owner IS NULL;
