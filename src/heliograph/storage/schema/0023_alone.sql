-- Only claims under which a message was alone in its worker's hands tell whether it kills.
ALTER TABLE outbox ADD COLUMN alone BIGINT NOT NULL DEFAULT 0;  -- such claims since the last recorded outcome
