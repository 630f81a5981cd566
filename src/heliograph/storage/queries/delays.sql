-- Deferred emails, for the event `email.delayed`.

-- name: insert_delays
-- Record the first deferral of recipients.
INSERT INTO delay (message, position, since, due_at, work)
SELECT message, position, since, due_at, work
FROM rows(:delays, message bigint, position smallint, since bigint, due_at bigint, work bigint) AS r
WHERE true
ON CONFLICT (message, position) DO NOTHING;

-- name: insert_relayed_delays
-- Record delays reported by a provider.
INSERT INTO delay (message, position, since, due_at, relayed, gives_up_at)
SELECT message, position, since, due_at, 1, gives_up_at
FROM rows(:delays, message bigint, position smallint, since bigint, due_at bigint, gives_up_at text) AS r
WHERE true
ON CONFLICT (message, position) DO UPDATE SET
    relayed = 1,
    gives_up_at = excluded.gives_up_at,
    due_at = CASE WHEN delay.told = 0 THEN delay.since + (excluded.due_at - excluded.since) ELSE NULL END;

-- name: any_due_delay
-- Return a row if any delay is due for publication.
SELECT 1 FROM delay WHERE due_at <= :now LIMIT 1;

-- name: due_delays_of
-- Lock and return the due delays of one team with a test clock.
-- CROSS JOIN keeps SQLite from starting with all messages of the team.
SELECT d.message, d.position, d.since, d.relayed, d.gives_up_at, r.status, r.detail, o.due_at, o.first_at, o.expires_at,
       m.team
FROM delay d
CROSS JOIN message m                                            --sqlite
JOIN message m ON m.key = d.message AND m.team = :team          --postgres
JOIN recipient r ON r.message = d.message AND r.position = d.position
LEFT JOIN outbox o ON o.key = d.work AND o.message = d.message AND o.position = d.position AND o.promises IS NULL
WHERE d.due_at <= :now
  AND m.key = d.message AND m.team = :team                       --sqlite
ORDER BY d.due_at LIMIT :limit
FOR UPDATE OF d SKIP LOCKED  --postgres
;

-- name: due_delays
-- Lock and return the due delays of all teams.
SELECT d.message, d.position, d.since, d.relayed, d.gives_up_at, r.status, r.detail, o.due_at, o.first_at, o.expires_at,
       m.team
FROM delay d
JOIN message m ON m.key = d.message
JOIN recipient r ON r.message = d.message AND r.position = d.position
LEFT JOIN outbox o ON o.key = d.work AND o.message = d.message AND o.position = d.position AND o.promises IS NULL
WHERE d.due_at <= :now ORDER BY d.due_at LIMIT :limit
FOR UPDATE OF d SKIP LOCKED  --postgres
;

-- name: settle_delays
-- Mark delays as handled, and as published where an event was written.
UPDATE delay SET due_at = NULL, told = CASE WHEN r.told = 1 THEN 1 ELSE delay.told END
FROM rows(:delays, message bigint, position smallint, told smallint) AS r
WHERE delay.message = r.message AND delay.position = r.position;
