-- The request log, newest first, and the last use of API keys.

-- name: insert_requests
-- Insert requests into the log.
-- The insert may be repeated after a lost database response, so existing rows are kept.
INSERT INTO request_log (id, team, at, key, route, status, code, message, more, took_ms, replayed, subject, refused,
                         client)
SELECT id, team, at, key, route, status, code, message, more, took_ms, replayed, subject, refused, client
FROM rows(:requests, id text, team bigint, at bigint, key text, route text, status smallint, code text, message text,
          more bigint, took_ms bigint, replayed smallint, subject text, refused smallint, client text) AS r
WHERE true
ON CONFLICT (id) DO NOTHING;

-- name: list_requests
-- Return a page of either refused or accepted requests, newest first; '' and 0 match any value.
SELECT id, team, at, key, route, status, code, message, more, took_ms, replayed, subject, refused, client
FROM request_log
WHERE team = :team AND refused = :refused AND id < :before AND id >= :since
  AND status BETWEEN :low AND :high AND (:key = '' OR key = :key) AND (:route = '' OR route = :route)
  AND (:code = '' OR code = :code) ORDER BY id DESC LIMIT :limit;

-- name: find_request
-- Return one request of a team.
SELECT id, team, at, key, route, status, code, message, more, took_ms, replayed, subject, refused, client
FROM request_log
WHERE team = :team AND id = :id;

-- name: compat_calls_of_key
-- Return a key's calls to compatibility APIs by route, client and code: their number, and the newest call.
-- `refused`: 1 for refused calls, 0 for accepted ones.
SELECT n.route, n.client, n.refused, n.code, n.message, n.status, n.id, n.at, g.calls
FROM (SELECT max(id) AS newest, count(*) AS calls FROM request_log
      WHERE team = :team AND refused = :refused AND id >= :since AND key = :key AND route LIKE '% /compat/%'
      GROUP BY route, client, code ORDER BY max(id) DESC LIMIT :most) AS g
JOIN request_log n ON n.id = g.newest ORDER BY n.id DESC;

-- name: request_filter_values
-- Return the routes and codes of the newest requests of a team, accepted or refused.
SELECT DISTINCT route, code FROM (SELECT route, code FROM request_log WHERE team = :team AND refused = :refused
                                  ORDER BY id DESC LIMIT :most) AS newest;

-- name: requests_version
-- Return the newest accepted and refused request of a team, as a page version.
SELECT (SELECT max(id) FROM request_log WHERE team = :team AND refused = 0),
       (SELECT max(id) FROM request_log WHERE team = :team AND refused = 1);

-- name: purge_requests
-- Delete a batch of requests older than an id.
DELETE FROM request_log
WHERE id IN (SELECT id FROM request_log WHERE id < :before ORDER BY id LIMIT :limit) RETURNING id;

-- name: trim_requests
-- Delete requests beyond the newest :most of each kind, for teams with recent requests.
-- `+ 0` keeps SQLite from reading the whole index on team.
DELETE FROM request_log WHERE id IN (
    SELECT o.id
    FROM (SELECT DISTINCT team + 0 AS team, refused + 0 AS refused FROM request_log WHERE id > :since) t
    JOIN request_log o ON o.team = t.team AND o.refused = t.refused AND o.id <= (
        SELECT n.id FROM request_log n WHERE n.team = t.team AND n.refused = t.refused
        ORDER BY n.id DESC LIMIT 1 OFFSET :most)
    LIMIT :limit) RETURNING id;

-- name: save_key_uses
-- Record the last use of API keys; a later time is never overwritten.
-- Ordered by key, so that concurrent processes cannot deadlock.
INSERT INTO key_use (key, used_at)
SELECT key, used_at FROM rows(:uses, key text, used_at bigint) AS r WHERE true ORDER BY key
ON CONFLICT (key) DO UPDATE SET used_at = excluded.used_at WHERE excluded.used_at > key_use.used_at;

-- name: key_uses
-- Return the last use of API keys.
SELECT u.key, u.used_at FROM rows(:keys, key text) AS r JOIN key_use u ON u.key = r.key;
