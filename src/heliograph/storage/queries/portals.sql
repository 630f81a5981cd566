-- Portals of teams: links and the sessions that they start.

-- name: insert_portal
-- Insert a portal whose link can be opened.
INSERT INTO portal (id, hash, csrf, platform_key, team, pages, return_url, expires_at)
VALUES (:id, :hash, '', :platform_key, :team, :pages, :return_url, :expires_at);

-- name: find_portal
-- Return the unexpired portal of a link (without a CSRF token) or of a session.
SELECT id, platform_key, team, pages, return_url, csrf FROM portal WHERE hash = :hash AND expires_at > :now;

-- name: open_portal
-- Replace the hash of a link, which becomes invalid, by that of a session; returns no row if the link was invalid.
UPDATE portal SET hash = :session_hash, csrf = :csrf, expires_at = :expires_at
WHERE hash = :hash AND csrf = '' AND expires_at > :now RETURNING id;

-- name: end_portals_of_teams
-- Delete the links and sessions of teams.
DELETE FROM portal WHERE team IN (SELECT team FROM rows(:teams, team text) AS r);

-- name: end_portals_of_keys
-- Delete the links and sessions of platform keys.
DELETE FROM portal WHERE platform_key IN (SELECT key FROM rows(:keys, key text) AS r);

-- name: purge_portals
-- Delete expired links and sessions.
DELETE FROM portal WHERE expires_at <= :now;
