-- Sends of the team's restricted keys in the last day, as JSON, in the row that every accept transaction locks.
ALTER TABLE account ADD COLUMN key_uses TEXT NOT NULL DEFAULT '';
