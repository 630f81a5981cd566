-- An id and a counter that only grows, for detecting a database that was restored from an older backup.

-- name: database_id
-- Return the id of the database, which is created once.
INSERT INTO counter (name, next) VALUES ('identity', :identity)
ON CONFLICT (name) DO UPDATE SET next = counter.next RETURNING next;

-- name: increase_restore_counter
-- Increase and return the counter that processes compare with the greatest value they have seen.
INSERT INTO counter (name, next) VALUES ('witness', 1)
ON CONFLICT (name) DO UPDATE SET next = counter.next + 1 RETURNING next;

-- name: probe
-- Write a row, to check that the database can commit.
INSERT INTO counter (name, next) VALUES ('probe', 1)
ON CONFLICT (name) DO UPDATE SET next = counter.next + 1;

-- name: change_identity
-- Set a new id of the database.
UPDATE counter SET next = :identity WHERE name = 'identity';
