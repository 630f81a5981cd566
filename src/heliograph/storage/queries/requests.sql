-- What requests leave: refused ones, newest first, and when API keys were last used.

-- name: note_refused
-- Again after an answer of the database that was lost: what is there stays.
INSERT INTO refused_request (id, team, at, key, route, status, code, message, more)
SELECT id, team, at, key, route, status, code, message, more
FROM rows(:requests, id text, team bigint, at bigint, key text, route text, status smallint, code text, message text,
          more bigint) AS r
WHERE true
ON CONFLICT (id) DO NOTHING;

-- name: refused_requests
SELECT id, team, at, key, route, status, code, message, more FROM refused_request
WHERE team = :team AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: refused_request
SELECT id, team, at, key, route, status, code, message, more FROM refused_request WHERE team = :team AND id = :id;

-- name: purge_refused
DELETE FROM refused_request
WHERE id IN (SELECT id FROM refused_request WHERE id < :before ORDER BY id LIMIT :limit) RETURNING id;

-- name: trim_refused
-- Of the teams that were refused lately, what is beyond the newest :most. `+ 0` keeps SQLite from the index on team:
-- it would read all of it.
DELETE FROM refused_request WHERE id IN (
    SELECT o.id FROM (SELECT DISTINCT team + 0 AS team FROM refused_request WHERE id > :since) t
    JOIN refused_request o ON o.team = t.team AND o.id <= (
        SELECT n.id FROM refused_request n WHERE n.team = t.team ORDER BY n.id DESC LIMIT 1 OFFSET :most)
    LIMIT :limit) RETURNING id;

-- name: note_key_use
-- Several processes write the same key: the latest use stays. In order, so that they do not lock each other out.
INSERT INTO key_use (key, used_at)
SELECT key, used_at FROM rows(:uses, key text, used_at bigint) AS r WHERE true ORDER BY key
ON CONFLICT (key) DO UPDATE SET used_at = excluded.used_at WHERE excluded.used_at > key_use.used_at;

-- name: key_uses
SELECT u.key, u.used_at FROM rows(:keys, key text) AS r JOIN key_use u ON u.key = r.key;
