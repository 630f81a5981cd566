-- Batches: messages that were accepted in one request, their progress, and the time when all were final.

-- name: insert_batches
-- Insert batches.
INSERT INTO batch (id, team, total, done_at)
SELECT id, team, total, done_at FROM rows(:batches, id text, team bigint, total bigint, done_at bigint) AS r;

-- name: find_batch
-- Return the number of accepted messages of a batch.
SELECT total FROM batch WHERE id = :id AND team = :team;

-- name: batch_counts
-- Return the number of messages of each batch by status.
SELECT m.batch, m.status, count(*) FROM rows(:ids, id text) AS r JOIN message m ON m.batch = r.id
GROUP BY m.batch, m.status;

-- name: lock_batches
-- Lock the unfinished batches among these, before `finish_batches`.
-- If two transactions finish the last two messages, the second one waits here and then sees the result of the first.
SELECT id FROM batch WHERE id IN (SELECT id FROM rows(:ids, id text) AS r) AND done_at IS NULL
ORDER BY id
FOR UPDATE  --postgres
;

-- name: finish_batches
-- Mark batches as done if all their messages are final, and return these batches.
UPDATE batch SET done_at = :at
WHERE id IN (SELECT id FROM rows(:ids, id text) AS r) AND done_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM message m WHERE m.batch = batch.id AND m.ended_at IS NULL)
RETURNING id, team, total;
