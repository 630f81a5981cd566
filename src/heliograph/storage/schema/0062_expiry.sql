-- Messages that expire while they wait for their turn.
CREATE INDEX outbox_expiry ON outbox (team, expires_at) WHERE expires_at IS NOT NULL;
