-- Messages that expire while they wait for their turn.

-- name: expiring_teams
-- Each team's first expiry. Skips from team to team along the index, as waiting_teams does.
WITH RECURSIVE expiring (team) AS (
    SELECT min(o.team) FROM outbox o WHERE o.expires_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(o.team) FROM outbox o WHERE o.expires_at IS NOT NULL AND o.team > e.team)
    FROM expiring e WHERE e.team IS NOT NULL
)
SELECT e.team, (SELECT min(o.expires_at) FROM outbox o WHERE o.expires_at IS NOT NULL AND o.team = e.team)
FROM expiring e WHERE e.team IS NOT NULL;

-- name: expired_rows
-- What a worker has claimed is its own: it checks the time itself before it sends.
SELECT o.key, o.epoch, o.message, o.position FROM outbox o
WHERE o.team = :team AND o.expires_at IS NOT NULL AND o.expires_at <= :now AND o.owner IS NULL AND o.promises IS NULL
ORDER BY o.expires_at LIMIT :limit
FOR UPDATE SKIP LOCKED  --postgres
;
