-- Backlogs and dead letters.
-- The `substr` expression is that of the partial index recipient_dead, so that only dead letters are read.

-- name: waiting_by_team
-- Return for each lane and team the numbers of due and of later rows, the first due time, and the start of the oldest
-- retry or hold.
-- Skips from team to team along the index, and counts no further than `most`.
WITH RECURSIVE waiting (lane, team) AS (
    SELECT l.lane, (SELECT min(o.team) FROM outbox o WHERE o.lane = l.lane AND o.owner IS NULL)
    FROM rows(:lanes, lane text) AS l
    UNION ALL
    SELECT w.lane, (SELECT min(o.team) FROM outbox o WHERE o.lane = w.lane AND o.owner IS NULL AND o.team > w.team)
    FROM waiting w WHERE w.team IS NOT NULL
)
SELECT w.lane, w.team,
       (SELECT count(*) FROM (SELECT 1 FROM outbox o WHERE o.lane = w.lane AND o.team = w.team AND o.owner IS NULL
                              AND o.due_at <= :now ORDER BY o.due_at LIMIT :most) AS due),
       (SELECT count(*) FROM (SELECT 1 FROM outbox o WHERE o.lane = w.lane AND o.team = w.team AND o.owner IS NULL
                              AND o.due_at > :now ORDER BY o.due_at LIMIT :most) AS later),
       (SELECT min(o.due_at) FROM outbox o WHERE o.lane = w.lane AND o.team = w.team AND o.owner IS NULL),
       (SELECT min(CASE WHEN later.attempt > 0 THEN later.first_at ELSE later.held_at END)
        FROM (SELECT o.attempt, o.first_at, o.held_at FROM outbox o WHERE o.lane = w.lane AND o.team = w.team AND o.owner IS NULL
              AND o.due_at > :now ORDER BY o.due_at LIMIT :most) AS later)
FROM waiting w WHERE w.team IS NOT NULL;

-- name: claimed_by_team
-- Return the number of claimed rows and the first due time per lane and team.
SELECT lane, team, count(*), min(due_at) FROM outbox WHERE owner IS NOT NULL GROUP BY lane, team;

-- name: waiting_deliveries
-- Return the backlog, failure start and oldest delivery of each webhook with waiting deliveries.
-- Skips from webhook to webhook along the index, and counts no further than `most`. The age of a delivery begins with
-- its first attempt, because each attempt changes due_at.
WITH RECURSIVE waiting (webhook) AS (
    SELECT min(webhook) FROM delivery WHERE state = 'waiting'
    UNION ALL
    SELECT (SELECT min(d.webhook) FROM delivery d WHERE d.state = 'waiting' AND d.webhook > w.webhook)
    FROM waiting w WHERE w.webhook IS NOT NULL
)
SELECT w.webhook,
       (SELECT count(*) FROM (SELECT 1 FROM delivery d WHERE d.state = 'waiting' AND d.webhook = w.webhook
                              ORDER BY d.due_at LIMIT :most) AS each),
       e.failing_since,
       (SELECT min(coalesce(each.first_at, each.created_at))
        FROM (SELECT d.first_at, d.created_at FROM delivery d WHERE d.state = 'waiting' AND d.webhook = w.webhook
              ORDER BY d.due_at LIMIT :most) AS each)
FROM waiting w LEFT JOIN endpoint e ON e.webhook = w.webhook WHERE w.webhook IS NOT NULL;

-- name: dead_letters
-- Return a page of dead letters that failed by `until`, newest message first.
SELECT r.message, r.position, m.id, m.team, m.channel, m.has_body, r.given, r.updated_at
FROM recipient r JOIN message m ON m.key = r.message
WHERE substr(r.detail, 1, 23) = '{"reason":"quarantined"' AND (r.message, r.position) < (:message, :position)
  AND r.updated_at <= :until
ORDER BY r.message DESC, r.position DESC LIMIT :limit;

-- name: count_dead_letters
-- Return the number of dead letters, up to `most`.
SELECT count(*) FROM (SELECT 1 FROM recipient WHERE substr(detail, 1, 23) = '{"reason":"quarantined"' LIMIT :most) AS d;

-- name: dead_letter
-- Return one dead letter with the details of its message.
SELECT r.message, r.position, m.id, m.team, m.channel, m.has_body, r.given, r.updated_at, m.price, m.charge, r.carrier,
       m.created_at, r.detail
FROM recipient r JOIN message m ON m.key = r.message
WHERE r.message = :message AND r.position = :position AND substr(r.detail, 1, 23) = '{"reason":"quarantined"';

-- name: find_dead_letters
-- Return the keys among these that are dead letters and whose content still exists.
SELECT r.message, r.position
FROM rows(:letters, message bigint, position smallint) AS p
JOIN recipient r ON r.message = p.message AND r.position = p.position
WHERE substr(r.detail, 1, 23) = '{"reason":"quarantined"'
  AND EXISTS (SELECT 1 FROM content c WHERE c.message = r.message)
ORDER BY r.message, r.position;

-- name: close_dead_letters
-- Give dead letters a new status and detail, so that they leave the dead-letter queue.
UPDATE recipient SET status = :status, detail = :detail, updated_at = :now
FROM rows(:letters, message bigint, position smallint) AS p
WHERE recipient.message = p.message AND recipient.position = p.position
  AND substr(recipient.detail, 1, 23) = '{"reason":"quarantined"'
RETURNING recipient.message;

-- name: reopen_messages
-- Reopen messages whose dead letters are retried.
-- The status `failed` is reset to `sending`, because no other state can follow `failed`.
UPDATE message SET ended_at = NULL, charge = r.charge, turn = r.turn,
                   status = CASE WHEN status = 'failed' THEN 'sending' ELSE status END
FROM rows(:messages, key bigint, charge text, turn bigint) AS r
WHERE message.key = r.key;
