-- Codes that a simulator delivered: known by a mark. The inbox shows a sandbox team's by deriving them, so that no text
-- is kept any more, not even sealed.

ALTER TABLE verification ADD COLUMN simulated SMALLINT NOT NULL DEFAULT 0;
DROP TABLE inbox_code;
