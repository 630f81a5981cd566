-- Messages that expire while they wait in the queue.

-- name: expiring_teams
-- Return each team with its first expiry time.
-- Skips from team to team along the index, as waiting_teams does.
WITH RECURSIVE expiring (team) AS (
    SELECT min(o.team) FROM outbox o WHERE o.expires_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(o.team) FROM outbox o WHERE o.expires_at IS NOT NULL AND o.team > e.team)
    FROM expiring e WHERE e.team IS NOT NULL
)
SELECT e.team, (SELECT min(o.expires_at) FROM outbox o WHERE o.expires_at IS NOT NULL AND o.team = e.team)
FROM expiring e WHERE e.team IS NOT NULL;

-- name: expired_rows
-- Lock and return expired, unclaimed rows of a team.
-- Claimed rows are excluded: the worker checks the expiry before it sends.
SELECT o.key, o.epoch, o.message, o.position FROM outbox o
WHERE o.team = :team AND o.expires_at IS NOT NULL AND o.expires_at <= :now AND o.owner IS NULL AND o.promises IS NULL
ORDER BY o.expires_at LIMIT :limit
FOR UPDATE SKIP LOCKED  --postgres
;
