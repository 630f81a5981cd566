-- Content that several messages of a batch share, stored once: members of a JSON object, without its braces.
CREATE TABLE shared_text (
    key  INTEGER PRIMARY KEY,  --sqlite
    key  BIGINT PRIMARY KEY,   --postgres
    body TEXT NOT NULL
);
ALTER TABLE content ADD COLUMN shared BIGINT;  -- key of the shared text; NULL: the body is complete
CREATE INDEX content_by_shared ON content (shared) WHERE shared IS NOT NULL;
-- Subqueries instead of a join: as the right side of a join, SQLite would read the whole view.
CREATE VIEW whole_content AS
SELECT message,
       CASE WHEN shared IS NULL THEN body ELSE substr(body, 1, length(body) - 1) || ','
           || (SELECT t.body FROM shared_text t WHERE t.key = content.shared) || '}' END AS body,
       octet_length(body)
           + coalesce(1 + (SELECT octet_length(t.body) FROM shared_text t WHERE t.key = content.shared), 0) AS octets
FROM content;
