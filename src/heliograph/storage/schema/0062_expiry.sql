-- Messages with an expiry time that wait in the queue.
CREATE INDEX outbox_expiry ON outbox (team, expires_at) WHERE expires_at IS NOT NULL;
