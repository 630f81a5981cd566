-- Messages that wait until a person releases or rejects them.
-- A message waits as long as it has rows in the queue `approval`, due when the hold expires; the table `approval` records
-- decisions. Every transaction that ends a hold locks these rows first: the first one wins.

-- name: lock_held_rows
-- Lock and return the queue rows of messages that wait for approval.
-- LATERAL keeps PostgreSQL from reading the rows of all messages that wait for approval.
SELECT o.key, o.epoch, o.message, o.position, o.due_at
FROM rows(:messages, message bigint) AS r
CROSS JOIN outbox o ON o.message = r.message AND o.lane = 'approval' AND o.owner IS NULL  --sqlite
CROSS JOIN LATERAL (                                                                      --postgres
    SELECT * FROM outbox                                                                  --postgres
    WHERE message = r.message AND lane = 'approval' AND owner IS NULL                     --postgres
    FOR UPDATE                                                                            --postgres
) AS o                                                                                    --postgres
;

-- name: insert_decisions
-- Record the decision on messages, with the time at which each hold would have expired.
INSERT INTO approval (message, id, team, key_id, created_at, expires_at, status, decided_at)
SELECT m.key, 'apr_' || substr(m.id, 5), m.team, m.key_id, m.created_at, r.expires_at, :status, :now
FROM rows(:holds, message bigint, expires_at bigint) AS r
CROSS JOIN message m  --sqlite
JOIN message m        --postgres
ON m.key = r.message;

-- name: release_rows
-- Move queue rows of a released message to the queue that workers claim from.
UPDATE outbox SET lane = :lane, due_at = CASE WHEN :due_at > first_at THEN :due_at ELSE first_at + 1 END,
                  expires_at = :expires_at
WHERE key IN (SELECT key FROM rows(:keys, key bigint) AS r);

-- name: clear_holds
-- Remove the hold from the recipients of a released message.
UPDATE recipient SET detail = NULL WHERE message = :message;

-- name: message_of_approval
-- Return channel and record of a message.
SELECT channel, record FROM message WHERE key = :message;

-- name: expired_holds
-- Return messages of a team whose hold has expired, with their records and the time at which it expired.
-- `queue` is `approval`, passed as a parameter so that rows are read in the order of the index outbox_due.
SELECT o.message, o.due_at, m.record FROM outbox o JOIN message m ON m.key = o.message
WHERE o.lane = :queue AND o.team = :team AND o.owner IS NULL AND o.due_at <= :now
      AND o.position = 0
ORDER BY o.due_at LIMIT :limit;

-- name: find_decided
-- Return a decided approval with its message.
SELECT a.message, a.id, m.id, a.team, m.channel, a.key_id, a.created_at, a.expires_at, a.status
FROM approval a JOIN message m ON m.key = a.message WHERE a.id = :id;

-- name: find_pending
-- Return the message that waits for approval, by its possible ids.
-- Skips from team to team with such messages along the index, as waiting_teams does.
WITH RECURSIVE waiting (team) AS (
    SELECT min(o.team) FROM outbox o WHERE o.lane = 'approval' AND o.owner IS NULL
    UNION ALL
    SELECT (SELECT min(o.team) FROM outbox o WHERE o.lane = 'approval' AND o.owner IS NULL AND o.team > w.team)
    FROM waiting w WHERE w.team IS NOT NULL
), message_of_id AS MATERIALIZED (
    SELECT m.key, m.id, m.team, m.channel, m.key_id, m.created_at FROM waiting w CROSS JOIN rows(:ids, id text) AS r
    CROSS JOIN message m  --sqlite
    JOIN message m        --postgres
    ON m.team = w.team AND m.id = r.id
)
SELECT f.key, :id, f.id, f.team, f.channel, f.key_id, f.created_at, o.due_at, 'pending'
FROM message_of_id f JOIN outbox o ON o.message = f.key AND o.lane = 'approval'
LIMIT 1;

-- name: list_decided
-- Return decided approvals of all teams, newest message first.
SELECT a.message, a.id, m.id, a.team, m.channel, a.key_id, a.created_at, a.expires_at, a.status
FROM approval a JOIN message m ON m.key = a.message
WHERE a.message < :before
ORDER BY a.message DESC LIMIT :limit;

-- name: list_pending
-- Return messages of all teams that wait for approval, newest first.
SELECT m.key, 'apr_' || substr(m.id, 5), m.id, m.team, m.channel, m.key_id, m.created_at, o.due_at, 'pending'
FROM outbox o JOIN message m ON m.key = o.message
WHERE o.lane = 'approval' AND o.message < :before
      AND o.position = 0
ORDER BY o.message DESC LIMIT :limit;

-- name: list_pending_of_team
-- Return messages of a team that wait for approval with their records, the first to expire first.
SELECT m.key, 'apr_' || substr(m.id, 5), m.id, m.team, m.channel, m.key_id, m.created_at, o.due_at, 'pending', m.record
FROM outbox o JOIN message m ON m.key = o.message
WHERE o.lane = :queue AND o.team = :team AND o.owner IS NULL
      AND o.position = 0
ORDER BY o.due_at LIMIT :limit;

-- name: count_pending
-- Count a team's messages that wait for approval, up to a limit.
SELECT count(*) FROM (SELECT o.key FROM outbox o WHERE o.lane = :queue AND o.team = :team AND o.owner IS NULL
                      AND o.position = 0 LIMIT :limit) AS pending;

-- name: purge_approvals
-- Delete the approvals of messages.
DELETE FROM approval WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: delete_team_approvals
-- Delete the team's approvals.
DELETE FROM approval WHERE team = :team;

-- name: approved_at
-- Return when a held message was approved.
SELECT decided_at FROM approval WHERE message = :message AND status = 'approved';
