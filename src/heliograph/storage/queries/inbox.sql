-- The test inbox: messages that simulators delivered.
-- A page scans at most :scan records, even if few of these belong to the inbox.

-- name: inbox_messages
-- Return a page of delivered messages, newest first.
-- `text` is searched in the recipient and in the subject, or in the body if there is no subject; `address` must match
-- exactly.
WITH seen AS (
    SELECT key, id, channel, status, created_at, record FROM message
    WHERE team = :team AND id > :low AND id < :high ORDER BY id DESC LIMIT :scan
), kept AS (
    SELECT s.key, s.id, s.channel, s.status, s.created_at, s.record,
           coalesce(s.record ->> 'subject', c.body ->> 'body', '') AS summary,  --sqlite
           coalesce(s.record::jsonb ->> 'subject', c.body::jsonb ->> 'body', '') AS summary,  --postgres
           coalesce(x.opened, 0) AS opened
    FROM seen s LEFT JOIN content c ON c.message = s.key LEFT JOIN inbox_mark x ON x.message = s.key
    WHERE coalesce(x.deleted, 0) = 0 AND (CAST(:unread AS bigint) = 0 OR coalesce(x.opened, 0) = 0)
), found AS (
    SELECT k.key, k.id, k.channel, k.status, k.created_at, k.summary, k.opened, k.record,
           min(r.given) AS given, count(*) AS recipients
    FROM kept k JOIN recipient r ON r.message = k.key
    WHERE r.carrier IN (SELECT id FROM rows(:carriers, id text) AS known)
      AND r.status IN ('sent', 'delivered', 'read', 'complained')
      AND (CAST(:address AS text) IS NULL OR r.address = :address)
      AND (instr(r.address, :text) > 0 OR instr(lower(k.summary), :text) > 0)  --sqlite
      AND (strpos(r.address, :text) > 0 OR strpos(lower(k.summary), :text) > 0)  --postgres
    GROUP BY k.key, k.id, k.channel, k.status, k.created_at, k.summary, k.opened, k.record
    ORDER BY k.id DESC LIMIT :limit
)
SELECT f.key, f.id, f.channel, f.status, f.created_at, f.summary, f.opened, f.given, f.recipients,
       coalesce(f.record ->> 'from', ''), coalesce(f.record ->> 'attachments_count', 0),  --sqlite
       coalesce(f.record::jsonb ->> 'from', ''),                                         --postgres
       CAST(coalesce(f.record::jsonb ->> 'attachments_count', '0') AS bigint),           --postgres
       coalesce((SELECT c.octets FROM whole_content c WHERE c.message = f.key), 0)
FROM found f ORDER BY f.id DESC;

-- name: inbox_messages_end
-- Return the smallest id and the number of the messages that inbox_messages scans.
SELECT min(id), count(*) FROM (
    SELECT id FROM message WHERE team = :team AND id > :low AND id < :high ORDER BY id DESC LIMIT :scan) AS seen;

-- name: inbox_message
-- Return one message with its inbox state, and its content if it is not longer than :most.
SELECT m.key, m.channel, m.status, m.sandbox, m.created_at, m.template_id, coalesce(x.opened, 0),
       coalesce(x.deleted, 0), CASE WHEN c.octets <= :most THEN c.body END, coalesce(c.octets, 0)
FROM message m LEFT JOIN whole_content c ON c.message = m.key LEFT JOIN inbox_mark x ON x.message = m.key
WHERE m.team = :team AND m.id = :id;

-- name: inbox_recipients
-- Return the recipients of a message to which these carriers delivered.
SELECT given, kind, status FROM recipient
WHERE message = :message AND carrier IN (SELECT id FROM rows(:carriers, id text) AS known)
  AND status IN ('sent', 'delivered', 'read', 'complained')
ORDER BY position;

-- name: inbox_codes
-- Return a page of simulated verifications, newest first.
WITH seen AS (
    SELECT id, phone, status, magic, sandbox, simulated, created_at, expires_at, added FROM verification
    WHERE team = :team AND id > :low AND id < :high ORDER BY id DESC LIMIT :scan
)
SELECT s.id, s.phone, CASE WHEN s.status = 'pending' AND s.expires_at <= :now THEN 'expired' ELSE s.status END,
       s.created_at, s.magic, s.added
FROM seen s
WHERE (s.simulated = 1 AND s.sandbox > 0 OR s.magic = 1) AND s.status <> 'failed'
  AND (CAST(:address AS text) IS NULL OR s.phone = :address)
  AND instr(s.phone, :text) > 0  --sqlite
  AND strpos(s.phone, :text) > 0  --postgres
ORDER BY s.id DESC LIMIT :limit;

-- name: inbox_code
-- Return one simulated verification.
SELECT id, phone, CASE WHEN status = 'pending' AND expires_at <= :now THEN 'expired' ELSE status END, created_at, magic,
       added
FROM verification
WHERE team = :team AND id = :id AND (simulated = 1 AND sandbox > 0 OR magic = 1) AND status <> 'failed';

-- name: inbox_codes_end
-- Return the smallest id and the number of the verifications that inbox_codes scans.
SELECT min(id), count(*) FROM (
    SELECT id FROM verification WHERE team = :team AND id > :low AND id < :high ORDER BY id DESC LIMIT :scan) AS seen;

-- name: inbox_cleared_at
-- Return the time at which the inbox was last cleared.
SELECT at FROM inbox_cleared WHERE team = :team;

-- name: clear_inbox
-- Set the time at which the inbox was cleared.
INSERT INTO inbox_cleared (team, at) VALUES (:team, :at) ON CONFLICT (team) DO UPDATE SET at = excluded.at;

-- name: inbox_contents
-- Return the contents of messages.
SELECT c.message, c.body FROM rows(:messages, message bigint) AS r JOIN whole_content c ON c.message = r.message;

-- name: inbox_recipients_of
-- Return the recipients of messages to which these carriers delivered.
SELECT r.message, p.given FROM rows(:messages, message bigint) AS r
JOIN recipient p ON p.message = r.message
WHERE p.carrier IN (SELECT id FROM rows(:carriers, id text) AS known)
  AND p.status IN ('sent', 'delivered', 'read', 'complained')
ORDER BY r.message, p.position;

-- name: inbox_files
-- Return the hashes of messages' attachment files.
SELECT b.message, b.hash FROM rows(:messages, message bigint) AS r JOIN blob b ON b.message = r.message;

-- name: mark_inbox
-- Mark a message as read, unread or deleted; returns no row if nothing changes.
-- A deleted message stays deleted. CAST sets the types of the parameters.
INSERT INTO inbox_mark (message, opened, deleted)
SELECT key, CAST(:opened AS smallint), CAST(:deleted AS smallint) FROM message WHERE team = :team AND id = :id
ON CONFLICT (message) DO UPDATE SET opened = excluded.opened,
    deleted = CASE WHEN excluded.deleted = 1 THEN 1 ELSE inbox_mark.deleted END
WHERE inbox_mark.opened <> excluded.opened OR inbox_mark.deleted < excluded.deleted
RETURNING message;

-- name: purge_inbox_marks
-- Delete the inbox state of messages.
DELETE FROM inbox_mark WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);
