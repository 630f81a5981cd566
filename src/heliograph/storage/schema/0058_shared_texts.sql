-- What contents have in common that came in one batch, kept once: members of a JSON object, without its braces.
CREATE TABLE shared_text (
    key  INTEGER PRIMARY KEY,  --sqlite
    key  BIGINT PRIMARY KEY,   --postgres
    body TEXT NOT NULL
);
ALTER TABLE content ADD COLUMN shared BIGINT;  -- whose key; what has none is whole
CREATE INDEX content_by_shared ON content (shared) WHERE shared IS NOT NULL;
-- No join: SQLite would read all of it where it stands on the right of one.
CREATE VIEW whole_content AS
SELECT message,
       CASE WHEN shared IS NULL THEN body ELSE substr(body, 1, length(body) - 1) || ','
           || (SELECT t.body FROM shared_text t WHERE t.key = content.shared) || '}' END AS body,
       octet_length(body)
           + coalesce(1 + (SELECT octet_length(t.body) FROM shared_text t WHERE t.key = content.shared), 0) AS octets
FROM content;
