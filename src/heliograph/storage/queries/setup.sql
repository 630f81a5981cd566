-- The setup: one JSON document per record; every change has a version that grows in commit order.

-- name: setup_version
-- Return the current version of the setup.
SELECT next FROM counter WHERE name = 'setting';

-- name: next_setup_version
-- Increase and return the version of the setup.
UPDATE counter SET next = next + 1 WHERE name = 'setting' RETURNING next;

-- name: next_team
-- Return the next unused team number.
SELECT coalesce(max(team), 0) + 1 FROM account;

-- name: load_settings
-- Return the records that changed since a version.
SELECT kind, id, team, body FROM setting WHERE version > :since ORDER BY version, kind, id;

-- name: save_settings
-- Insert or replace records.
INSERT INTO setting (kind, id, team, body, version)
SELECT kind, id, team, body, version
FROM rows(:settings, kind text, id text, team text, body text, version bigint) AS r
WHERE true
ON CONFLICT (kind, id) DO UPDATE SET team = excluded.team, body = excluded.body, version = excluded.version;

-- name: insert_account
-- Insert the account of a new team.
INSERT INTO account (team, available, held, month, used) VALUES (:team, :credit, 0, '', 0);

-- name: find_account
-- Return the account of a team, without locking.
SELECT team, available, held, month, used, erased, sandbox_day, sandbox_used, octets_day, octets_used,
       opted_out, key_uses FROM account
WHERE team = :team;
