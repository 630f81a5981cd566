-- Imports of suppressions: files on their way onto the list, portion by portion.

-- name: insert_portions
INSERT INTO import_portion (import_id, number, lines)
SELECT import_id, number, lines FROM rows(:portions, import_id text, number bigint, lines text) AS r;

-- name: insert_import
INSERT INTO suppression_import (id, team, lines, left_out, first_left, portions, created_at)
VALUES (:id, :team, :lines, :left_out, :first_left, :portions, :now);

-- name: open_imports
-- Those that are least far first, so that a large file does not keep the others waiting.
SELECT id FROM suppression_import WHERE ended_at IS NULL ORDER BY lines_done, id LIMIT :limit;

-- name: lock_import
-- The lock is the lease: it ends with the transaction or with the process.
SELECT team, portions_done FROM suppression_import WHERE id = :id AND ended_at IS NULL
FOR UPDATE SKIP LOCKED  --postgres
;

-- name: find_portion
SELECT lines FROM import_portion WHERE import_id = :id AND number = :number;

-- name: note_portion
UPDATE import_portion SET added = :added WHERE import_id = :id AND number = :number;

-- name: move_import
UPDATE suppression_import SET portions_done = portions_done + 1, lines_done = lines_done + :lines,
    added = added + :added, known = known + :known,
    ended_at = CASE WHEN portions_done + 1 = portions THEN CAST(:now AS bigint) END
WHERE id = :id;

-- name: stop_import
UPDATE suppression_import SET ended_at = :now, broken = 1 WHERE id = :id AND ended_at IS NULL;

-- name: newest_imports
SELECT id, lines, left_out, lines_done, added, known, created_at, ended_at, broken FROM suppression_import
WHERE team = :team ORDER BY id DESC LIMIT :limit;

-- name: find_import
SELECT id, lines, left_out, lines_done, added, known, created_at, ended_at, broken FROM suppression_import
WHERE team = :team AND id = :id;

-- name: first_left
SELECT first_left FROM suppression_import WHERE id = :id;

-- name: done_portions
SELECT number, lines, added FROM import_portion WHERE import_id = :id AND number > :after AND added IS NOT NULL
ORDER BY number LIMIT :limit;

-- name: purge_imports
DELETE FROM suppression_import WHERE id < :before;

-- name: purge_portions
DELETE FROM import_portion WHERE (import_id, number) IN (
    SELECT import_id, number FROM import_portion WHERE import_id < :before ORDER BY import_id, number LIMIT :limit)
RETURNING number;
