-- When API keys were last used.

-- name: note_key_use
-- Several processes write the same key: the latest use stays. In order, so that they do not lock each other out.
INSERT INTO key_use (key, used_at)
SELECT key, used_at FROM rows(:uses, key text, used_at bigint) AS r WHERE true ORDER BY key
ON CONFLICT (key) DO UPDATE SET used_at = excluded.used_at WHERE excluded.used_at > key_use.used_at;

-- name: key_uses
SELECT u.key, u.used_at FROM rows(:keys, key text) AS r JOIN key_use u ON u.key = r.key;
