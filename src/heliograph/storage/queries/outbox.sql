-- The delivery queue: claims under a lease, heartbeats and releases.

-- name: waiting_teams
-- Return the teams with waiting rows per lane, and when the first row of each is due.
-- Skips from team to team along the index, so that a team with 100,000 rows costs one step.
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
-- Claim up to `share` rows of each team that are due by the team's clock.
-- PostgreSQL skips rows that another worker is claiming; SQLite has a single writer. MATERIALIZED keeps PostgreSQL from
-- running the subquery once per row of a table that it considers small, where each run would lock other rows.
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

-- name: count_poison_candidates
-- Return the number of due poison-message candidates.
-- The literal 2 is that of the index outbox_suspect; with a parameter, the whole queue would be read.
SELECT count(*) FROM outbox o WHERE o.owner IS NULL AND o.claims >= 2 AND o.alone < :deaths
   AND o.due_at <= :now + coalesce((SELECT m.ahead FROM rows(:moved, team bigint, ahead bigint) AS m WHERE m.team = o.team), 0);

-- name: claim_poison_candidate
-- Claim one poison-message candidate, which a worker processes alone.
-- Its next due time is set in advance, so that the row waits longer after each crash of its worker and others go first.
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
-- Return recipient, message, suppression and unsubscribe of claimed rows.
SELECT r.message, r.position, r.address, r.given, m.id, m.channel, m.sandbox, m.country, m.trace, s.created_at,
       u.created_at
FROM rows(:places, message bigint, position smallint) AS p
JOIN recipient r ON r.message = p.message AND r.position = p.position
JOIN message m ON m.key = r.message
LEFT JOIN suppression s ON s.team = m.team AND s.address = r.address
LEFT JOIN unsubscribe u ON u.team = m.team AND u.address = r.address AND u.category = m.category;

-- name: waiting_rows
-- Lock and return a message's rows that were neither attempted nor claimed.
SELECT key, epoch, position, expires_at FROM outbox
WHERE lane = :lane AND team = :team AND owner IS NULL AND due_at = :due_at AND message = :message AND attempt = 0
      AND claims = 0 AND promises IS NULL AND held_at IS NULL
FOR UPDATE SKIP LOCKED  --postgres
;

-- name: wake_held
-- Give rows that were held because a carrier was unavailable their original due time again.
WITH picked AS MATERIALIZED (
    SELECT o.key FROM rows(:lanes, lane text) AS l
    JOIN outbox o ON o.lane = l.lane AND o.due_at > :now AND o.held_at IS NOT NULL AND o.owner IS NULL
    LIMIT :most
    FOR UPDATE OF o SKIP LOCKED  --postgres
)
UPDATE outbox SET due_at = held_at WHERE key IN (SELECT p.key FROM picked p) RETURNING key;

-- name: move_rows
-- Set the due time of rows.
UPDATE outbox SET due_at = :due_at WHERE key IN (SELECT key FROM rows(:keys, key bigint) AS r);

-- name: update_record
-- Replace the record of a message.
UPDATE message SET record = :record WHERE key = :message;

-- name: contents
-- Return the contents of messages.
SELECT c.message, c.body FROM rows(:messages, message bigint) AS p JOIN whole_content c ON c.message = p.message;

-- name: heartbeat
-- Renew the leases of claims in progress, including claims that were freed but not claimed again (see fence).
-- The caller lists only claims in progress, because a claim whose result was lost must expire.
UPDATE outbox SET owner = :owner, lease_until = :lease_until
FROM rows(:claims, key bigint, epoch bigint) AS r
WHERE outbox.key = r.key AND outbox.epoch = r.epoch
  AND (outbox.owner || '' = :owner OR (outbox.owner IS NULL AND outbox.claims > 0))
RETURNING outbox.key;

-- name: release_claims
-- Release claims that were not worked on, so that these claims do not count.
-- `|| ''`: see fence.
UPDATE outbox SET owner = NULL, lease_until = NULL, claims = claims - r.shared, alone = outbox.alone - r.alone
FROM rows(:claims, key bigint, epoch bigint, shared smallint, alone smallint) AS r
WHERE outbox.key = r.key AND outbox.epoch = r.epoch AND outbox.owner || '' = :owner;

-- name: leave_isolation
-- Record that a worker no longer processes these claims alone; a later crash of the worker does not count against them.
UPDATE outbox SET alone = alone - 1
FROM rows(:claims, key bigint, epoch bigint) AS r
WHERE outbox.key = r.key AND outbox.epoch = r.epoch AND outbox.owner || '' = :owner;

-- name: release_all_claims
-- Release all claims of an owner at once, after its restart; the claims stay counted.
UPDATE outbox SET owner = NULL, lease_until = NULL WHERE owner = :owner;

-- name: reclaim
-- Release claims whose lease has expired.
UPDATE outbox SET owner = NULL, lease_until = NULL WHERE owner IS NOT NULL AND lease_until <= :over RETURNING key;

-- name: find_poison
-- Return recipients that crashed `deaths` workers which processed nothing else.
SELECT key, epoch, message, position, team FROM outbox
WHERE owner IS NULL AND claims >= 2 AND alone >= :deaths AND promises IS NULL
LIMIT 100;

-- name: drop_poisoned_reports
-- Delete simulated reports that crashed `deaths` workers which processed nothing else.
DELETE FROM outbox WHERE owner IS NULL AND claims >= 2 AND alone >= :deaths AND promises IS NOT NULL;
