-- The audit log, and its chain.

-- name: insert_audit
INSERT INTO audit (at, person, team, action, subject, detail, address)
SELECT at, person, team, action, subject, detail, address
FROM rows(:entries, at bigint, person text, team text, action text, subject text, detail text, address text) AS r
RETURNING key, at, person, team, action, subject, detail, address;

-- name: lock_audit_head
-- Whoever adds to the chain waits for the one before.
UPDATE audit_head SET place = place WHERE one = 1
RETURNING place, link, lower(hex(randomblob(32)))                              --sqlite
RETURNING place, link, gen_random_uuid()::text || gen_random_uuid()::text  --postgres
;

-- name: move_audit_head
UPDATE audit_head SET place = :place, link = :link WHERE one = 1;

-- name: link_audit
UPDATE audit SET place = r.place, salt = r.salt, link = r.link
FROM rows(:links, key bigint, place bigint, salt text, link text) AS r WHERE audit.key = r.key;

-- name: audit_head
SELECT place, link, before FROM audit_head WHERE one = 1;

-- name: audit_link
SELECT link FROM audit WHERE place = :place;

-- name: close_audit_start
-- All of before is in the chain: whatever its key, an entry that comes without a place now was not there then.
UPDATE audit_head SET before = :before WHERE one = 1 AND before > :before;

-- name: unlinked_audit
-- What is not in the chain: of before it began, of a process of the version before, or written by hand.
SELECT key, at, person, team, action, subject, detail, address FROM audit
WHERE place IS NULL ORDER BY place, key LIMIT :limit;

-- name: walk_audit
-- In the order of the chain.
SELECT key, at, person, team, action, subject, detail, address, place, salt, link, original FROM audit
WHERE (place, key) > (:place, :key) ORDER BY place, key LIMIT :limit;

-- name: find_audit
SELECT key, at, person, team, action, subject, detail, address, place, salt, original FROM audit
WHERE key IN (SELECT key FROM rows(:keys, key bigint) AS r);

-- name: rewrite_audit
UPDATE audit SET subject = r.subject, detail = r.detail, salt = r.salt, original = r.original
FROM rows(:rows, key bigint, subject text, detail text, salt text, original text) AS r WHERE audit.key = r.key;

-- name: list_audit
-- Of one team, newest first, between two keys. `action`: how it begins.
SELECT a.key, a.at, a.person, p.email, p.name, a.team, a.action, a.subject, a.detail, a.address
FROM audit a LEFT JOIN person p ON p.id = a.person
WHERE a.team = :team AND a.key < :before AND a.key >= :floor
  AND a.at >= :since AND a.at < :until AND (CAST(:actor AS text) IS NULL OR a.person = :actor)
  AND substr(a.action, 1, length(CAST(:action AS text))) = :action
  AND (CAST(:decisions AS bigint) = 0 OR a.action LIKE '%.approve' OR a.action LIKE '%.refuse')
ORDER BY a.key DESC LIMIT :limit;

-- name: list_whole_audit
SELECT a.key, a.at, a.person, p.email, p.name, a.team, a.action, a.subject, a.detail, a.address
FROM audit a LEFT JOIN person p ON p.id = a.person
WHERE a.key < :before AND a.key >= :floor
  AND a.at >= :since AND a.at < :until AND (CAST(:actor AS text) IS NULL OR a.person = :actor)
  AND substr(a.action, 1, length(CAST(:action AS text))) = :action
  AND (CAST(:decisions AS bigint) = 0 OR a.action LIKE '%.approve' OR a.action LIKE '%.refuse')
ORDER BY a.key DESC LIMIT :limit;

-- name: audit_floor
-- Where a walk of so many lines ends.
SELECT key FROM audit WHERE team = :team AND key < :before ORDER BY key DESC LIMIT 1 OFFSET :walk;

-- name: whole_audit_floor
SELECT key FROM audit WHERE key < :before ORDER BY key DESC LIMIT 1 OFFSET :walk;

-- name: audit_before
SELECT key FROM audit WHERE at < :until ORDER BY at DESC, key DESC LIMIT 1;

-- name: audit_since
SELECT key FROM audit WHERE at >= :since ORDER BY at, key LIMIT 1;
