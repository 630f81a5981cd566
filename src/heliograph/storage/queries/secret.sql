-- By which the database knows its master secret again.

-- name: known_secret
-- The digest, NULL in a database that never met one; and whether something is sealed.
SELECT (SELECT value FROM fact WHERE name = 'secret'),
       EXISTS (SELECT 1 FROM setting WHERE kind IN ('webhook', 'dkim_key') AND body IS NOT NULL)
       OR EXISTS (SELECT 1 FROM setting WHERE kind = 'carrier' AND body LIKE '%"sealed"%')
       OR EXISTS (SELECT 1 FROM person WHERE totp IS NOT NULL);

-- name: meet_secret
-- Returns the one that it knows: this one, or the one that it met before.
INSERT INTO fact (name, value) VALUES ('secret', :digest)
ON CONFLICT (name) DO UPDATE SET value = fact.value RETURNING value;

-- name: change_secret
UPDATE fact SET value = :digest WHERE name = 'secret';
