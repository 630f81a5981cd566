-- Times of attempts by hashed name.

-- name: lock_attempts
-- Insert missing rows, and lock and return the attempts of names.
-- Ordered by name, so that transactions that lock the same names cannot deadlock.
INSERT INTO wrong_try (name, times, ends_at)
SELECT name, '[]', 0 FROM rows(:names, name text) AS r WHERE true ORDER BY name
ON CONFLICT (name) DO UPDATE SET name = excluded.name
RETURNING name, times;

-- name: find_attempts
-- Return the attempts of names, without locking.
SELECT w.name, w.times FROM wrong_try w JOIN rows(:names, name text) AS r ON r.name = w.name;

-- name: save_attempts
-- Write back the attempts of names.
UPDATE wrong_try SET times = r.times, ends_at = r.ends_at
FROM rows(:tries, name text, times text, ends_at bigint) AS r WHERE wrong_try.name = r.name;

-- name: purge_attempts
-- Delete a batch of rows whose attempts no longer count.
DELETE FROM wrong_try WHERE ends_at <= :before AND name IN (
    SELECT name FROM wrong_try WHERE ends_at <= :before ORDER BY ends_at LIMIT :limit) RETURNING 1;
