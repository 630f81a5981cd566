-- Due work: claim under a lease, keep the lease alive, give it back.

-- name: waiting_teams
-- With the time when each one's first work is due. Skips from team to team along the index, so that a team with 100,000 rows costs one step.
WITH RECURSIVE waiting (lane, team) AS (
    SELECT l.lane, (SELECT min(o.team) FROM outbox o WHERE o.lane = l.lane AND o.owner IS NULL)
    FROM rows(:lanes, lane text) AS l
    UNION ALL
    SELECT w.lane, (SELECT min(o.team) FROM outbox o WHERE o.lane = w.lane AND o.owner IS NULL AND o.team > w.team)
    FROM waiting w WHERE w.team IS NOT NULL
)
SELECT w.lane, w.team,
       (SELECT min(o.due_at) FROM outbox o WHERE o.lane = w.lane AND o.owner IS NULL AND o.team = w.team)
FROM waiting w WHERE w.team IS NOT NULL;

-- name: claim
-- Each team's work that is due by its own time.
-- PostgreSQL skips rows that another worker is claiming; SQLite has one writer at a time. MATERIALIZED: PostgreSQL would
-- run the subquery once for each row of a table that it believes to be small, and each run would lock other rows.
WITH picked AS MATERIALIZED (
    SELECT o.key FROM rows(:teams, team bigint, now bigint) AS t  --sqlite
    JOIN outbox o ON o.key IN (                                   --sqlite
        SELECT i.key FROM outbox i                                --sqlite
    SELECT o.key FROM rows(:teams, team bigint, now bigint) AS t  --postgres
    CROSS JOIN LATERAL (                                          --postgres
        SELECT i.key FROM outbox i                                --postgres
        WHERE i.lane = :lane AND i.owner IS NULL AND i.team = t.team AND i.due_at <= t.now AND i.claims < :claims
        ORDER BY i.due_at LIMIT :share
    )                                                             --sqlite
        FOR UPDATE SKIP LOCKED) AS o                              --postgres
)
UPDATE outbox SET owner = :owner, lease_until = :lease_until, claims = claims + 1, epoch = epoch + 1
WHERE key IN (SELECT p.key FROM picked p)
RETURNING key, epoch, team, message, position, promises, first_at, attempt, deferrals, uncertain,
          absent_at, due_at, expires_at, held_at, claims;

-- name: suspects
-- The literal is that of the index outbox_suspect: without it the whole queue would be read.
SELECT count(*) FROM outbox o WHERE o.owner IS NULL AND o.claims >= 2 AND o.alone < :deaths
   AND o.due_at <= :now + coalesce((SELECT m.ahead FROM rows(:moved, team bigint, ahead bigint) AS m WHERE m.team = o.team), 0);

-- name: claim_suspect
-- If its worker dies, others go first, and it waits: the longer, the more often that happened.
WITH picked AS MATERIALIZED (
    SELECT o.key FROM outbox o
    WHERE o.owner IS NULL AND o.claims >= 2 AND o.alone < :deaths
      AND o.due_at <= :now + coalesce((SELECT m.ahead FROM rows(:moved, team bigint, ahead bigint) AS m WHERE m.team = o.team), 0)
    ORDER BY o.due_at LIMIT 1
    FOR UPDATE SKIP LOCKED  --postgres
)
UPDATE outbox SET owner = :owner, lease_until = :lease_until, alone = alone + 1, epoch = epoch + 1,
                  due_at = :now + (alone + 1) * :again
                         + coalesce((SELECT m.ahead FROM rows(:moved, team bigint, ahead bigint) AS m WHERE m.team = outbox.team), 0)
WHERE key IN (SELECT p.key FROM picked p)
RETURNING key, epoch, team, message, position, promises, first_at, attempt, deferrals, uncertain,
          absent_at, due_at, expires_at, held_at, claims;

-- name: claimed_recipients
SELECT r.message, r.position, r.address, r.given, m.id, m.channel, m.sandbox, m.country, m.trace, s.created_at
FROM rows(:places, message bigint, position smallint) AS p
JOIN recipient r ON r.message = p.message AND r.position = p.position
JOIN message m ON m.key = r.message
LEFT JOIN suppression s ON s.team = m.team AND s.address = r.address;

-- name: waiting_rows
-- What of a message has not been tried yet and is in nobody's hands.
SELECT key, epoch, position, expires_at FROM outbox
WHERE lane = :lane AND team = :team AND owner IS NULL AND due_at = :due_at AND message = :message AND attempt = 0
      AND claims = 0 AND promises IS NULL AND held_at IS NULL
FOR UPDATE SKIP LOCKED  --postgres
;

-- name: wake_held
-- What waits for a carrier that is back: due since it was due at first.
WITH picked AS MATERIALIZED (
    SELECT o.key FROM rows(:lanes, lane text) AS l
    JOIN outbox o ON o.lane = l.lane AND o.due_at > :now AND o.held_at IS NOT NULL AND o.owner IS NULL
    LIMIT :most
    FOR UPDATE OF o SKIP LOCKED  --postgres
)
UPDATE outbox SET due_at = held_at WHERE key IN (SELECT p.key FROM picked p) RETURNING key;

-- name: move_rows
UPDATE outbox SET due_at = :due_at WHERE key IN (SELECT key FROM rows(:keys, key bigint) AS r);

-- name: change_record
UPDATE message SET record = :record WHERE key = :message;

-- name: contents
SELECT c.message, c.body FROM rows(:messages, message bigint) AS p JOIN whole_content c ON c.message = p.message;

-- name: heartbeat
-- Only what is really in work: a claim whose answer was lost on the way must run out. As `fence`: also what was freed.
UPDATE outbox SET owner = :owner, lease_until = :lease_until
FROM rows(:claims, key bigint, epoch bigint) AS r
WHERE outbox.key = r.key AND outbox.epoch = r.epoch
  AND (outbox.owner || '' = :owner OR (outbox.owner IS NULL AND outbox.claims > 0))
RETURNING outbox.key;

-- name: release_claims
-- Given back untouched: the claim does not count. `|| ''`: see fence.
UPDATE outbox SET owner = NULL, lease_until = NULL, claims = claims - r.shared, alone = outbox.alone - r.alone
FROM rows(:claims, key bigint, epoch bigint, shared smallint, alone smallint) AS r
WHERE outbox.key = r.key AND outbox.epoch = r.epoch AND outbox.owner || '' = :owner;

-- name: join_others
UPDATE outbox SET alone = alone - 1
FROM rows(:claims, key bigint, epoch bigint) AS r
WHERE outbox.key = r.key AND outbox.epoch = r.epoch AND outbox.owner || '' = :owner;

-- name: take_back
-- After a restart: what this owner had claimed is free again at once; those claims stay counted.
UPDATE outbox SET owner = NULL, lease_until = NULL WHERE owner = :owner;

-- name: reclaim
UPDATE outbox SET owner = NULL, lease_until = NULL WHERE owner IS NOT NULL AND lease_until <= :over RETURNING key;

-- name: find_poison
SELECT key, epoch, message, position, team FROM outbox
WHERE owner IS NULL AND claims >= 2 AND alone >= :deaths AND promises IS NULL
LIMIT 100;

-- name: drop_poisoned_reports
DELETE FROM outbox WHERE owner IS NULL AND claims >= 2 AND alone >= :deaths AND promises IS NOT NULL;
