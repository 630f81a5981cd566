-- What a team's restricted keys sent in the last day, as JSON: read and written with the row that every accept locks.
ALTER TABLE account ADD COLUMN key_uses TEXT NOT NULL DEFAULT '';
