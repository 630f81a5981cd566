-- After this time a message is not handed over any more (contract 16).
ALTER TABLE outbox ADD COLUMN expires_at BIGINT;
