-- Messages that wait until a person releases or rejects them.
-- Every transaction that ends a hold locks the approval first, then the queue rows, then the message.

-- name: decide_approval
-- Record the decision on an approval that is pending and not over; return no row otherwise.
UPDATE approval SET status = :status, decided_at = :now
WHERE id = :id AND status = 'pending' AND expires_at > :now
RETURNING message, team, expires_at;

-- name: cancel_approval
-- Mark the approval of a message as canceled; return no row if it is not pending.
UPDATE approval SET status = 'canceled', decided_at = :now
WHERE message = :message AND status = 'pending'
RETURNING message, team, expires_at;

-- name: lock_pending_approval
-- Lock and return the pending approval of a message.
SELECT message, team, expires_at FROM approval WHERE message = :message AND status = 'pending'
FOR UPDATE  --postgres
;

-- name: held_rows
-- Return the queue rows of messages that wait for approval.
SELECT o.key, o.epoch, o.message, o.position
FROM rows(:holds, message bigint, team bigint, expires_at bigint) AS h
CROSS JOIN outbox o  --sqlite
JOIN outbox o        --postgres
ON o.lane = 'approval' AND o.team = h.team AND o.due_at = h.expires_at AND o.owner IS NULL AND o.message = h.message;

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

-- name: earliest_approval_expiries
-- Return each team with its earliest expiry of a pending approval.
-- Skips from team to team along the index, as waiting_teams does.
WITH RECURSIVE waiting (team) AS (
    SELECT min(a.team) FROM approval a WHERE a.decided_at IS NULL
    UNION ALL
    SELECT (SELECT min(a.team) FROM approval a WHERE a.decided_at IS NULL AND a.team > w.team)
    FROM waiting w WHERE w.team IS NOT NULL
)
SELECT w.team, (SELECT min(a.expires_at) FROM approval a WHERE a.decided_at IS NULL AND a.team = w.team)
FROM waiting w WHERE w.team IS NOT NULL;

-- name: expire_approvals
-- Mark pending approvals of a team as expired; return them with the records of their messages.
WITH due AS MATERIALIZED (
    SELECT a.message, m.record FROM approval a JOIN message m ON m.key = a.message
    WHERE a.decided_at IS NULL AND a.team = :team AND a.expires_at <= :now
    ORDER BY a.expires_at LIMIT :limit
    FOR UPDATE OF a SKIP LOCKED  --postgres
)
UPDATE approval SET status = 'expired', decided_at = :now
WHERE message IN (SELECT d.message FROM due d)
RETURNING message, team, expires_at, (SELECT m.record FROM message m WHERE m.key = approval.message);

-- name: find_approval
-- Return an approval with its message.
SELECT a.id, m.id, a.team, m.channel, a.key_id, a.created_at, a.expires_at, a.status
FROM approval a JOIN message m ON m.key = a.message WHERE a.id = :id;

-- name: list_approvals
-- Return approvals of all teams, newest first.
SELECT a.id, m.id, a.team, m.channel, a.key_id, a.created_at, a.expires_at, a.status
FROM approval a JOIN message m ON m.key = a.message
WHERE a.id < :before
ORDER BY a.id DESC LIMIT :limit;

-- name: list_pending_approvals
-- Return the pending approvals of a team and the records of their messages, the first to expire first.
SELECT a.id, m.id, a.team, m.channel, a.key_id, a.created_at, a.expires_at, a.status, m.record
FROM approval a JOIN message m ON m.key = a.message
WHERE a.team = :team AND a.decided_at IS NULL
ORDER BY a.expires_at LIMIT :limit;

-- name: purge_approvals
-- Delete the approvals of messages.
DELETE FROM approval WHERE message IN (SELECT message FROM rows(:messages, message bigint) AS r);

-- name: delete_team_approvals
-- Delete the team's approvals.
DELETE FROM approval WHERE team = :team;

-- name: approved_at
-- Return when a held message was approved.
SELECT decided_at FROM approval WHERE message = :message AND status = 'approved';
