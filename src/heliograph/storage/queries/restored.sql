-- A number that only grows, and a name of the database: who has seen a greater number knows that it was turned back.

-- name: identify
INSERT INTO counter (name, next) VALUES ('identity', :identity)
ON CONFLICT (name) DO UPDATE SET next = counter.next RETURNING next;

-- name: bump_attested
INSERT INTO counter (name, next) VALUES ('witness', 1)
ON CONFLICT (name) DO UPDATE SET next = counter.next + 1 RETURNING next;

-- name: probe
INSERT INTO counter (name, next) VALUES ('probe', 1)
ON CONFLICT (name) DO UPDATE SET next = counter.next + 1;

-- name: change_identity
UPDATE counter SET next = :identity WHERE name = 'identity';
