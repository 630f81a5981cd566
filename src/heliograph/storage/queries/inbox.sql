-- The inbox: what simulators delivered. A page looks at :scan records at most, however few of them are the inbox's.

-- name: inbox_messages
-- `text` is looked for in the recipient and in the subject, or in the body of what has none.
WITH seen AS (
    SELECT key, id, status, created_at, record FROM message
    WHERE team = :team AND id > :low AND id < :high ORDER BY id DESC LIMIT :scan
), kept AS (
    SELECT s.key, s.id, s.status, s.created_at,
           coalesce(s.record ->> 'subject', c.body ->> 'body', '') AS summary  --sqlite
           coalesce(s.record::jsonb ->> 'subject', c.body::jsonb ->> 'body', '') AS summary  --postgres
    FROM seen s LEFT JOIN content c ON c.message = s.key
)
SELECT k.id, k.status, k.created_at, k.summary, min(r.given), count(*)
FROM kept k JOIN recipient r ON r.message = k.key
WHERE r.carrier IN (SELECT id FROM rows(:carriers, id text) AS known)
  AND r.status IN ('sent', 'delivered', 'read', 'complained')
  AND (instr(r.address, :text) > 0 OR instr(lower(k.summary), :text) > 0)  --sqlite
  AND (strpos(r.address, :text) > 0 OR strpos(lower(k.summary), :text) > 0)  --postgres
GROUP BY k.id, k.status, k.created_at, k.summary ORDER BY k.id DESC LIMIT :limit;

-- name: inbox_messages_end
SELECT min(id), count(*) FROM (
    SELECT id FROM message WHERE team = :team AND id > :low AND id < :high ORDER BY id DESC LIMIT :scan) AS seen;

-- name: inbox_message
SELECT m.key, m.channel, m.status, m.sandbox, m.created_at, m.template_id, c.body
FROM message m LEFT JOIN content c ON c.message = m.key WHERE m.team = :team AND m.id = :id;

-- name: inbox_recipients
SELECT given, kind, status FROM recipient
WHERE message = :message AND carrier IN (SELECT id FROM rows(:carriers, id text) AS known)
  AND status IN ('sent', 'delivered', 'read', 'complained')
ORDER BY position;

-- name: inbox_codes
WITH seen AS (
    SELECT id, phone, status, magic, sandbox, simulated, created_at, expires_at FROM verification
    WHERE team = :team AND id > :low AND id < :high ORDER BY id DESC LIMIT :scan
)
SELECT s.id, s.phone, CASE WHEN s.status = 'pending' AND s.expires_at <= :now THEN 'expired' ELSE s.status END,
       s.created_at, s.magic
FROM seen s
WHERE (s.simulated = 1 AND s.sandbox = 1 OR s.magic = 1) AND s.status <> 'failed'
  AND instr(s.phone, :text) > 0  --sqlite
  AND strpos(s.phone, :text) > 0  --postgres
ORDER BY s.id DESC LIMIT :limit;

-- name: inbox_codes_end
SELECT min(id), count(*) FROM (
    SELECT id FROM verification WHERE team = :team AND id > :low AND id < :high ORDER BY id DESC LIMIT :scan) AS seen;

-- name: inbox_cleared_at
SELECT at FROM inbox_cleared WHERE team = :team;

-- name: clear_inbox
INSERT INTO inbox_cleared (team, at) VALUES (:team, :at) ON CONFLICT (team) DO UPDATE SET at = excluded.at;
