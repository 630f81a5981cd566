-- What the developers' pages look at: the newest events, single ones, and the health of endpoints.

-- name: newest_events
-- Looks through `span` events at most, so that a rare type costs no more than a frequent one.
SELECT e.id, e.type, e.sequence, e.created_at, e.recipient, e.status, e.previous_status, e.message_status, e.detail,
       m.record, m.sandbox, r.kind
FROM (SELECT * FROM event WHERE team = :team AND id < :before AND sequence IS NOT NULL
      ORDER BY id DESC LIMIT :span) e
LEFT JOIN message m ON m.key = e.message
LEFT JOIN recipient r ON r.message = e.message AND r.given = e.recipient
WHERE e.type IN (SELECT type FROM rows(:types, type text) AS t)
ORDER BY e.id DESC LIMIT :limit;

-- name: span_of_events
SELECT count(*), min(id) FROM (SELECT id FROM event WHERE team = :team AND id < :before AND sequence IS NOT NULL
                               ORDER BY id DESC LIMIT :span) e;

-- name: failing_endpoints
SELECT e.webhook, e.failing_since FROM rows(:webhooks, webhook text) AS r JOIN endpoint e ON e.webhook = r.webhook
WHERE e.failing_since IS NOT NULL;
