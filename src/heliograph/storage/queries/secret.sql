-- The digest of the master secret, and the encrypted columns.

-- name: known_secret
-- Return the digest (NULL if none is registered), whether encrypted texts exist, and the kept keys.
SELECT (SELECT value FROM fact WHERE name = 'secret'),
       EXISTS (SELECT 1 FROM setting WHERE kind IN ('webhook', 'dkim_key') AND body IS NOT NULL)
       OR EXISTS (SELECT 1 FROM setting WHERE kind = 'carrier' AND body LIKE '%"sealed"%')
       OR EXISTS (SELECT 1 FROM person WHERE totp IS NOT NULL) OR EXISTS (SELECT 1 FROM chat_hook),
       (SELECT value FROM fact WHERE name = 'kept_keys');

-- name: register_secret
-- Register the digest of the secret if none is registered; return the registered digest.
INSERT INTO fact (name, value) VALUES ('secret', :digest)
ON CONFLICT (name) DO UPDATE SET value = fact.value RETURNING value;

-- name: change_secret
-- Replace the digest of the secret.
UPDATE fact SET value = :digest WHERE name = 'secret';

-- name: save_kept_keys
-- Store the encrypted keys that stay in use after a rotation.
INSERT INTO fact (name, value) VALUES ('kept_keys', :kept) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: delete_kept_keys
-- Delete the kept keys.
DELETE FROM fact WHERE name = 'kept_keys';

-- name: encrypted_totp
-- Return the encrypted TOTP secrets.
SELECT id, totp FROM person WHERE totp IS NOT NULL ORDER BY id;

-- name: reencrypt_totp
-- Replace encrypted TOTP secrets that were not changed since they were read.
UPDATE person SET totp = r.after FROM rows(:rows, id text, before text, after text) AS r
WHERE person.id = r.id AND person.totp = r.before RETURNING person.id;

-- name: encrypted_chat_hooks
-- Return the encrypted chat webhook URLs.
SELECT team, sealed FROM chat_hook ORDER BY team;

-- name: reencrypt_chat_hooks
-- Replace encrypted chat webhook URLs that were not changed since they were read.
UPDATE chat_hook SET sealed = r.after FROM rows(:rows, team text, before text, after text) AS r
WHERE chat_hook.team = r.team AND chat_hook.sealed = r.before RETURNING chat_hook.team;
