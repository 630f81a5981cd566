-- Sends that were accepted together: how far they are, and when the last was finished.

-- name: insert_batches
INSERT INTO batch (id, team, total, done_at)
SELECT id, team, total, done_at FROM rows(:batches, id text, team bigint, total bigint, done_at bigint) AS r;

-- name: find_batch
SELECT total FROM batch WHERE id = :id AND team = :team;

-- name: batch_counts
SELECT m.batch, m.status, count(*) FROM rows(:ids, id text) AS r JOIN message m ON m.batch = r.id
GROUP BY m.batch, m.status;

-- name: lock_batches
-- Before the last statement of the two looks: of two transactions that end the last two messages, one waits here, and
-- sees what the other did.
SELECT id FROM batch WHERE id IN (SELECT id FROM rows(:ids, id text) AS r) AND done_at IS NULL
ORDER BY id
FOR UPDATE  --postgres
;

-- name: finish_batches
UPDATE batch SET done_at = :at
WHERE id IN (SELECT id FROM rows(:ids, id text) AS r) AND done_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM message m WHERE m.batch = batch.id AND m.ended_at IS NULL)
RETURNING id, team, total;
