-- The audit log and its hash chain.

-- name: insert_audit
-- Append entries to the audit log.
INSERT INTO audit (at, person, team, action, subject, detail, address)
SELECT at, person, team, action, subject, detail, address
FROM rows(:entries, at bigint, person text, team text, action text, subject text, detail text, address text) AS r
RETURNING key, at, person, team, action, subject, detail, address;

-- name: lock_audit_head
-- Lock the head of the chain and return it with a random seed; concurrent writers wait for the commit.
UPDATE audit_head SET place = place WHERE one = 1                       --sqlite
RETURNING place, link, lower(hex(randomblob(32)))                       --sqlite
SELECT place, link, gen_random_uuid()::text || gen_random_uuid()::text  --postgres
FROM audit_head WHERE one = 1 FOR UPDATE                                --postgres
;

-- name: move_audit_head
-- Set the head of the chain to the newest link.
UPDATE audit_head SET place = :place, link = :link WHERE one = 1;

-- name: link_audit
-- Store position, salt and hash of newly linked entries.
UPDATE audit SET place = r.place, salt = r.salt, link = r.link
FROM rows(:links, key bigint, place bigint, salt text, link text) AS r WHERE audit.key = r.key;

-- name: audit_head
-- Return the head of the chain.
SELECT place, link, before FROM audit_head WHERE one = 1;

-- name: audit_link
-- Return the hash of the entry at a position of the chain.
SELECT link FROM audit WHERE place = :place;

-- name: finish_audit_backfill
-- Record that all entries older than the chain are linked.
-- From then on, an entry without a position is treated as added later, whatever its key.
UPDATE audit_head SET before = :before WHERE one = 1 AND before > :before;

-- name: unlinked_audit
-- Return entries that are not in the chain.
-- These are older than the chain, written by a process of the previous version, or inserted manually.
SELECT key, at, person, team, action, subject, detail, address FROM audit
WHERE place IS NULL ORDER BY place, key LIMIT :limit;

-- name: audit_in_chain_order
-- Return the next entries in chain order, for verification.
SELECT key, at, person, team, action, subject, detail, address, place, salt, link, original FROM audit
WHERE (place, key) > (:place, :key) ORDER BY place, key LIMIT :limit;

-- name: find_audit
-- Return audit entries by key.
SELECT key, at, person, team, action, subject, detail, address, place, salt, original FROM audit
WHERE key IN (SELECT key FROM rows(:keys, key bigint) AS r);

-- name: rewrite_audit
-- Replace the texts of entries, and store the new salts and the hashes of the original texts.
UPDATE audit SET subject = r.subject, detail = r.detail, salt = r.salt, original = r.original
FROM rows(:rows, key bigint, subject text, detail text, salt text, original text) AS r WHERE audit.key = r.key;

-- name: list_audit
-- Return a team's audit entries between two keys, newest first; `action` is a prefix.
SELECT a.key, a.at, a.person, p.email, p.name, a.team, a.action, a.subject, a.detail, a.address
FROM audit a LEFT JOIN person p ON p.id = a.person
WHERE a.team = :team AND a.key < :before AND a.key >= :floor
  AND a.at >= :since AND a.at < :until AND (CAST(:actor AS text) IS NULL OR a.person = :actor)
  AND substr(a.action, 1, length(CAST(:action AS text))) = :action
  AND (CAST(:decisions AS bigint) = 0 OR a.action LIKE '%.approve' OR a.action LIKE '%.refuse')
ORDER BY a.key DESC LIMIT :limit;

-- name: list_whole_audit
-- Return audit entries of the whole instance between two keys, newest first; `action` is a prefix.
SELECT a.key, a.at, a.person, p.email, p.name, a.team, a.action, a.subject, a.detail, a.address
FROM audit a LEFT JOIN person p ON p.id = a.person
WHERE a.key < :before AND a.key >= :floor
  AND a.at >= :since AND a.at < :until AND (CAST(:actor AS text) IS NULL OR a.person = :actor)
  AND substr(a.action, 1, length(CAST(:action AS text))) = :action
  AND (CAST(:decisions AS bigint) = 0 OR a.action LIKE '%.approve' OR a.action LIKE '%.refuse')
ORDER BY a.key DESC LIMIT :limit;

-- name: audit_filter_actions
-- Return the actions of the newest audit entries of a team.
SELECT DISTINCT action FROM (SELECT action FROM audit WHERE team = :team ORDER BY key DESC LIMIT :most) AS newest;

-- name: whole_audit_filter_actions
-- Return the actions of the newest audit entries of the whole instance.
SELECT DISTINCT action FROM (SELECT action FROM audit ORDER BY key DESC LIMIT :most) AS newest;

-- name: audit_floor
-- Return the key of the team's entry that is `walk` entries older than `before`, at which a scan ends.
SELECT key FROM audit WHERE team = :team AND key < :before ORDER BY key DESC LIMIT 1 OFFSET :walk;

-- name: whole_audit_floor
-- Return the key of the entry that is `walk` entries older than `before`, over the whole instance.
SELECT key FROM audit WHERE key < :before ORDER BY key DESC LIMIT 1 OFFSET :walk;

-- name: audit_before
-- Return the key of the newest entry before a time.
SELECT key FROM audit WHERE at < :until ORDER BY at DESC, key DESC LIMIT 1;

-- name: audit_since
-- Return the key of the oldest entry since a time.
SELECT key FROM audit WHERE at >= :since ORDER BY at, key LIMIT 1;
