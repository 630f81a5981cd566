-- What a team stored on a UTC day, in bytes of content and attachments.

ALTER TABLE account ADD COLUMN octets_day BIGINT NOT NULL DEFAULT 0;   -- days since 1970
ALTER TABLE account ADD COLUMN octets_used BIGINT NOT NULL DEFAULT 0;
