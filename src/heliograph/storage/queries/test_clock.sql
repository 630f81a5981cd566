-- A team's test clock: what is due next by it, and all that is deleted when it is turned off.

-- name: next_due
-- The first work of a team by its own time, whoever has it in hand: messages, webhooks, emails that were put off, codes.
-- What is tried alone is put off beforehand, in case its worker dies: while it is in hand, it is due.
-- CROSS and the plus signs: else SQLite reads all messages and verifications of the team.
SELECT min(due_at) FROM (
    SELECT (SELECT min(o.due_at) FROM outbox o WHERE o.lane = l.lane AND o.owner IS NULL AND o.team = :team) AS due_at
    FROM rows(:lanes, lane text) AS l
    UNION ALL
    SELECT CASE WHEN o.alone > 0 THEN 0 ELSE o.due_at END FROM outbox o WHERE o.owner IS NOT NULL AND o.team = :team
    UNION ALL
    SELECT (SELECT min(d.due_at) FROM delivery d WHERE d.state = 'waiting' AND d.webhook = w.webhook)
    FROM rows(:webhooks, webhook text) AS w
    UNION ALL
    SELECT d.due_at FROM delay d CROSS JOIN message m                                 --sqlite
    WHERE d.due_at > 0 AND m.key = d.message AND +m.team = :team                      --sqlite
    SELECT d.due_at FROM delay d JOIN message m ON m.key = d.message                  --postgres
    WHERE d.due_at > 0 AND m.team = :team                                             --postgres
    UNION ALL
    SELECT v.next_at FROM verification v WHERE v.next_at > 0 AND +v.team = :team
) AS waiting;

-- name: end_messages
-- Not those that are still to be sent from when the team was live.
UPDATE message SET ended_at = coalesce(ended_at, created_at)
WHERE team = :team AND (sandbox <> 0 OR ended_at IS NOT NULL) RETURNING key;

-- name: added_of_team
SELECT team, id, added FROM verification WHERE team = :team AND added <> '{}';

-- name: forget_work
DELETE FROM outbox WHERE team = :team AND NOT EXISTS (SELECT 1 FROM message m WHERE m.key = outbox.message);

-- name: forget_tries
DELETE FROM attempt WHERE delivery IN (
    SELECT d.key FROM rows(:webhooks, webhook text) AS r JOIN delivery d ON d.webhook = r.webhook);

-- name: forget_deliveries
DELETE FROM delivery WHERE webhook IN (SELECT webhook FROM rows(:webhooks, webhook text) AS r);

-- name: forget_events
DELETE FROM event WHERE team = :team AND NOT EXISTS (SELECT 1 FROM message m WHERE m.key = event.message);

-- name: forget_verifications
-- Not one whose code is being sent: its process settles the hold.
DELETE FROM verification WHERE team = :team AND owner IS NULL;

-- name: forget_batches
DELETE FROM batch WHERE team = :team AND NOT EXISTS (SELECT 1 FROM message m WHERE m.batch = batch.id);

-- name: forget_received
DELETE FROM received WHERE team = :team;

-- name: forget_marketing
DELETE FROM marketing WHERE team = :team;

-- name: forget_conversion
DELETE FROM conversion WHERE team = :team;

-- name: forget_answers
DELETE FROM text_answer WHERE team = :team;

-- name: forget_counts
UPDATE account SET month = '', used = 0, sandbox_day = 0, sandbox_used = 0, octets_day = 0, octets_used = 0
WHERE team = :team;

-- name: forget_keys
-- Remembered answers of the team's keys whose message is gone.
DELETE FROM idempotency WHERE key_id IN (SELECT id FROM setting WHERE kind = 'key' AND team = :team)
  AND NOT EXISTS (SELECT 1 FROM message m WHERE m.team = :ref AND m.id = idempotency.owner);
