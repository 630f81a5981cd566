-- What a sandbox team sent over real carriers in a UTC day, in the row that every accept locks anyway.

ALTER TABLE account ADD COLUMN sandbox_day BIGINT NOT NULL DEFAULT 0;   -- days since 1970
ALTER TABLE account ADD COLUMN sandbox_used BIGINT NOT NULL DEFAULT 0;
