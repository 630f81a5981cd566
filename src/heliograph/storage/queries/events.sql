-- Events and their subscribers.

-- name: insert_events, many rows at once
INSERT INTO event (id, team, subject, message, recipient, sequence, type, status, previous_status,
                   message_status, detail, created_at)
SELECT id, team, subject, message, recipient, sequence, type, status, previous_status, message_status, detail,
       created_at
FROM rows(:events, id text, team bigint, subject text, message bigint, recipient text, sequence bigint,
          type text, status text, previous_status text, message_status text, detail text, created_at bigint) AS r;

-- name: insert_deliveries, many rows at once
INSERT INTO delivery (webhook, team, event, subject, state, attempt, due_at, created_at)
SELECT webhook, team, event, subject, 'waiting', 0, 0, created_at
FROM rows(:deliveries, webhook text, team bigint, event text, subject text, created_at bigint) AS r;

-- name: insert_own_deliveries
-- Of messages whose team has an endpoint that signs callbacks: the event is told to the message's own address, when it has
-- one, whatever the endpoint listens to, else to the endpoint if it listens. `own` marks a line of its own.
INSERT INTO delivery (webhook, team, event, subject, state, attempt, due_at, created_at)
SELECT CASE WHEN c.url IS NULL THEN r.webhook ELSE r.webhook || :own END, r.team, r.event, r.subject, 'waiting', 0, 0,
       r.created_at
FROM rows(:deliveries, webhook text, team bigint, event text, subject text, created_at bigint, message bigint,
          heard smallint) AS r
LEFT JOIN callback c ON c.message = r.message
WHERE c.url IS NOT NULL OR r.heard = 1;

-- name: feed
-- `before` leaves out the newest moment: ids of two processes may be committed out of order within it.
SELECT e.id, e.type, e.sequence, e.created_at, e.recipient, e.status, e.previous_status, e.message_status,
       coalesce(e.detail, x.record),
       m.record, m.sandbox, r.kind
FROM event e
LEFT JOIN message m ON m.key = e.message
LEFT JOIN recipient r ON r.message = e.message AND r.given = e.recipient
LEFT JOIN received x ON e.detail IS NULL AND x.id = e.subject
WHERE e.team = :team AND e.id > :after AND e.sequence IS NOT NULL AND e.created_at <= :before
ORDER BY e.id LIMIT :limit;

-- name: newest_events
-- Looks through `span` events at most, so that a rare type costs no more than a frequent one.
SELECT e.id, e.type, e.sequence, e.created_at, e.recipient, e.status, e.previous_status, e.message_status,
       coalesce(e.detail, x.record),
       m.record, m.sandbox, r.kind
FROM (SELECT * FROM event WHERE team = :team AND id < :before AND sequence IS NOT NULL
      ORDER BY id DESC LIMIT :span) e
LEFT JOIN message m ON m.key = e.message
LEFT JOIN recipient r ON r.message = e.message AND r.given = e.recipient
LEFT JOIN received x ON e.detail IS NULL AND x.id = e.subject
WHERE e.type IN (SELECT type FROM rows(:types, type text) AS t)
ORDER BY e.id DESC LIMIT :limit;

-- name: span_of_events
SELECT count(*), min(id) FROM (SELECT id FROM event WHERE team = :team AND id < :before AND sequence IS NOT NULL
                               ORDER BY id DESC LIMIT :span) e;
