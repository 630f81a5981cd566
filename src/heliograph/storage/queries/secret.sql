-- By which the database knows its master secret again.

-- name: known_secret
-- The digest, NULL in a database that never met one; whether something is sealed; and the keys that outlive a rotation.
SELECT (SELECT value FROM fact WHERE name = 'secret'),
       EXISTS (SELECT 1 FROM setting WHERE kind IN ('webhook', 'dkim_key') AND body IS NOT NULL)
       OR EXISTS (SELECT 1 FROM setting WHERE kind = 'carrier' AND body LIKE '%"sealed"%')
       OR EXISTS (SELECT 1 FROM person WHERE totp IS NOT NULL) OR EXISTS (SELECT 1 FROM chat_hook),
       (SELECT value FROM fact WHERE name = 'kept_keys');

-- name: meet_secret
-- Returns the one that it knows: this one, or the one that it met before.
INSERT INTO fact (name, value) VALUES ('secret', :digest)
ON CONFLICT (name) DO UPDATE SET value = fact.value RETURNING value;

-- name: change_secret
UPDATE fact SET value = :digest WHERE name = 'secret';

-- name: keep_keys
INSERT INTO fact (name, value) VALUES ('kept_keys', :kept) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: forget_kept_keys
DELETE FROM fact WHERE name = 'kept_keys';

-- name: sealed_people
SELECT id, totp FROM person WHERE totp IS NOT NULL ORDER BY id;

-- name: reseal_people
-- Those that nobody changed meanwhile.
UPDATE person SET totp = r.after FROM rows(:rows, id text, before text, after text) AS r
WHERE person.id = r.id AND person.totp = r.before RETURNING person.id;

-- name: sealed_chat_hooks
SELECT team, sealed FROM chat_hook ORDER BY team;

-- name: reseal_chat_hooks
UPDATE chat_hook SET sealed = r.after FROM rows(:rows, team text, before text, after text) AS r
WHERE chat_hook.team = r.team AND chat_hook.sealed = r.before RETURNING chat_hook.team;
