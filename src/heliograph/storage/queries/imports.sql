-- Imports of suppressions: files that are applied to the suppression list in batches.

-- name: insert_import_batches
-- Store batches of lines of a new file.
INSERT INTO import_portion (import_id, number, lines)
SELECT import_id, number, lines FROM rows(:portions, import_id text, number bigint, lines text) AS r;

-- name: insert_import
-- Insert an import.
INSERT INTO suppression_import (id, team, lines, left_out, first_left, portions, created_at)
VALUES (:id, :team, :lines, :left_out, :first_left, :portions, :now);

-- name: open_imports
-- Return imports in progress, those with the fewest processed lines first.
-- A large file therefore does not delay other imports.
SELECT id FROM suppression_import WHERE ended_at IS NULL ORDER BY lines_done, id LIMIT :limit;

-- name: lock_import
-- Lock an import in progress and return its next batch number.
-- The row lock is the lease: it ends with the transaction or the process.
SELECT team, portions_done FROM suppression_import WHERE id = :id AND ended_at IS NULL
FOR UPDATE SKIP LOCKED  --postgres
;

-- name: find_import_batch
-- Return the lines of a batch.
SELECT lines FROM import_portion WHERE import_id = :id AND number = :number;

-- name: finish_import_batch
-- Record which lines of a batch were added to the list.
UPDATE import_portion SET added = :added WHERE import_id = :id AND number = :number;

-- name: advance_import
-- Advance an import by one batch; end it after the last batch.
UPDATE suppression_import SET portions_done = portions_done + 1, lines_done = lines_done + :lines,
    added = added + :added, known = known + :known,
    ended_at = CASE WHEN portions_done + 1 = portions THEN CAST(:now AS bigint) END
WHERE id = :id;

-- name: stop_import
-- End an import early and mark it as broken.
UPDATE suppression_import SET ended_at = :now, broken = 1 WHERE id = :id AND ended_at IS NULL;

-- name: newest_imports
-- Return the newest imports of a team.
SELECT id, lines, left_out, lines_done, added, known, created_at, ended_at, broken FROM suppression_import
WHERE team = :team ORDER BY id DESC LIMIT :limit;

-- name: find_import
-- Return one import of a team.
SELECT id, lines, left_out, lines_done, added, known, created_at, ended_at, broken FROM suppression_import
WHERE team = :team AND id = :id;

-- name: first_skipped_lines
-- Return the first skipped lines of an import.
SELECT first_left FROM suppression_import WHERE id = :id;

-- name: finished_import_batches
-- Return processed batches with the lines that were added.
SELECT number, lines, added FROM import_portion WHERE import_id = :id AND number > :after AND added IS NOT NULL
ORDER BY number LIMIT :limit;

-- name: purge_imports
-- Delete imports older than an id.
DELETE FROM suppression_import WHERE id < :before;

-- name: purge_import_batches
-- Delete a batch of import lines older than an id.
DELETE FROM import_portion WHERE (import_id, number) IN (
    SELECT import_id, number FROM import_portion WHERE import_id < :before ORDER BY import_id, number LIMIT :limit)
RETURNING number;
