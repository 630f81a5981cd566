-- Requests that were refused, newest first.

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
