-- Bytes of content and attachments that a team stored on a UTC day.

ALTER TABLE account ADD COLUMN octets_day BIGINT NOT NULL DEFAULT 0;   -- days since 1970
ALTER TABLE account ADD COLUMN octets_used BIGINT NOT NULL DEFAULT 0;
