-- Webhook deliveries: claim an endpoint, read due deliveries, record attempts, replay, delete.

-- name: due_webhooks
-- Return webhooks with due deliveries, and the lease end if another process holds the endpoint.
-- `moved`: webhooks of teams with a test clock, with their time.
-- Skips from webhook to webhook along the index, so that a webhook with 100,000 deliveries costs one step.
WITH RECURSIVE waiting (webhook) AS (
    SELECT min(webhook) FROM delivery WHERE state = 'waiting'
    UNION ALL
    SELECT (SELECT min(d.webhook) FROM delivery d WHERE d.state = 'waiting' AND d.webhook > w.webhook)
    FROM waiting w WHERE w.webhook IS NOT NULL
)
SELECT w.webhook, CASE WHEN e.owner <> :owner THEN e.lease_until END
FROM waiting w LEFT JOIN endpoint e ON e.webhook = w.webhook
LEFT JOIN rows(:moved, webhook text, now bigint) AS r ON r.webhook = w.webhook
WHERE w.webhook IS NOT NULL
  AND EXISTS (SELECT 1 FROM delivery d
              WHERE d.state = 'waiting' AND d.webhook = w.webhook AND d.due_at <= coalesce(r.now, :now));

-- name: claim_endpoints
-- Claim endpoints that are free, expired or already owned by the caller; increases the epoch.
-- A caller claims an endpoint that it already owns only if the result of an earlier claim or release was lost.
INSERT INTO endpoint (webhook, owner, lease_until, epoch)
SELECT webhook, :owner, CAST(:lease_until AS bigint), 1 FROM rows(:webhooks, webhook text) AS r WHERE true ORDER BY webhook
ON CONFLICT (webhook) DO UPDATE SET owner = excluded.owner, lease_until = excluded.lease_until,
                                    epoch = endpoint.epoch + 1
WHERE endpoint.owner IS NULL OR endpoint.lease_until <= :over OR endpoint.owner = :owner
RETURNING webhook, epoch;

-- name: renew_endpoints
-- Renew the leases of the caller's endpoints.
UPDATE endpoint SET lease_until = :lease_until
FROM rows(:endpoints, webhook text, epoch bigint) AS r
WHERE endpoint.webhook = r.webhook AND endpoint.epoch = r.epoch AND endpoint.owner = :owner
RETURNING endpoint.webhook;

-- name: release_endpoint
-- Release the caller's lease on an endpoint.
UPDATE endpoint SET owner = NULL, lease_until = NULL
WHERE webhook = :webhook AND epoch = :epoch AND owner = :owner;

-- name: release_all_endpoints
-- Release all endpoints of an owner, after its restart.
UPDATE endpoint SET owner = NULL, lease_until = NULL WHERE owner = :owner;

-- name: fence_endpoints
-- Lock and return the endpoints among these that the caller still owns.
SELECT e.webhook, e.epoch, e.failing_since FROM rows(:endpoints, webhook text, epoch bigint) AS r
JOIN endpoint e ON e.webhook = r.webhook AND e.epoch = r.epoch AND e.owner = :owner
ORDER BY e.webhook
FOR UPDATE OF e  --postgres
;

-- name: update_endpoints
-- Set the time since which endpoints have been failing.
UPDATE endpoint SET failing_since = r.failing_since
FROM rows(:endpoints, webhook text, failing_since bigint) AS r
WHERE endpoint.webhook = r.webhook;

-- name: new_deliveries
-- Return deliveries that were never attempted, with event, message and recipient kind, oldest first.
SELECT d.key, d.team, d.event, d.subject, d.attempt, d.earlier, d.first_at,
       e.id, e.type, e.sequence, e.created_at, e.recipient, e.status, e.previous_status, e.message_status,
       coalesce(e.detail, x.record), m.record, m.sandbox, r.kind, m.trace, c.url
FROM (SELECT * FROM delivery WHERE state = 'waiting' AND webhook = :webhook AND due_at = 0
      ORDER BY key LIMIT :limit) d
LEFT JOIN event e ON e.team = d.team AND e.id = d.event
LEFT JOIN message m ON m.key = e.message
LEFT JOIN callback c ON c.message = e.message
LEFT JOIN recipient r ON r.message = e.message AND r.given = e.recipient
LEFT JOIN received x ON e.detail IS NULL AND x.id = e.subject
ORDER BY d.key;

-- name: due_deliveries
-- Return deliveries due for a retry, with event, message and recipient kind.
SELECT d.key, d.team, d.event, d.subject, d.attempt, d.earlier, d.first_at,
       e.id, e.type, e.sequence, e.created_at, e.recipient, e.status, e.previous_status, e.message_status,
       coalesce(e.detail, x.record), m.record, m.sandbox, r.kind, m.trace, c.url
FROM (SELECT * FROM delivery WHERE state = 'waiting' AND webhook = :webhook AND due_at > 0 AND due_at <= :now
      ORDER BY due_at, key LIMIT :limit) d
LEFT JOIN event e ON e.team = d.team AND e.id = d.event
LEFT JOIN message m ON m.key = e.message
LEFT JOIN callback c ON c.message = e.message
LEFT JOIN recipient r ON r.message = e.message AND r.given = e.recipient
LEFT JOIN received x ON e.detail IS NULL AND x.id = e.subject
ORDER BY d.due_at, d.key;

-- name: events_by_id
-- Return events by id, with message and recipient kind.
SELECT e.id, e.type, e.sequence, e.created_at, e.recipient, e.status, e.previous_status, e.message_status,
       coalesce(e.detail, x.record),
       m.record, m.sandbox, r.kind
FROM rows(:events, team bigint, id text) AS p
JOIN event e ON e.team = p.team AND e.id = p.id
LEFT JOIN message m ON m.key = e.message
LEFT JOIN recipient r ON r.message = e.message AND r.given = e.recipient
LEFT JOIN received x ON e.detail IS NULL AND x.id = e.subject;

-- name: record_attempts
-- Record the results of attempts.
-- Skips a delivery that was replayed or dropped during the attempt, and a new delivery for which SQLite reused its key.
UPDATE delivery SET state = r.state, attempt = r.attempt + 1, due_at = r.due_at,
                    first_at = coalesce(delivery.first_at, r.at)
FROM rows(:tries, key bigint, event text, attempt bigint, earlier bigint, state text, due_at bigint, at bigint) AS r
WHERE delivery.key = r.key AND delivery.event = r.event AND delivery.state = 'waiting'
  AND delivery.attempt = r.attempt AND delivery.earlier = r.earlier
RETURNING delivery.key, delivery.event;

-- name: insert_attempts
-- Insert attempts with status, error and response.
INSERT INTO attempt (delivery, number, at, status, reason, error, duration_ms, answer)
SELECT delivery, number, at, status, reason, error, duration_ms, answer
FROM rows(:attempts, delivery bigint, number bigint, at bigint, status smallint, reason text, error text,
          duration_ms bigint, answer text) AS r;

-- name: list_deliveries
-- Return a page of a webhook's deliveries before the event `before`, newest first.
-- A delivery that was never attempted has due_at 0 and is shown as due since its creation.
SELECT d.key, d.event, e.type, d.state, d.attempt, coalesce(nullif(d.due_at, 0), d.created_at), e.created_at FROM delivery d
JOIN event e ON e.team = d.team AND e.id = d.event
WHERE d.webhook = :webhook AND d.event < :before
ORDER BY d.event DESC LIMIT :limit;

-- name: list_failed
-- Return a page of a webhook's failed deliveries, newest first; the condition is that of index delivery_failed.
SELECT d.key, d.event, e.type, d.state, d.attempt, coalesce(nullif(d.due_at, 0), d.created_at), e.created_at FROM delivery d
JOIN event e ON e.team = d.team AND e.id = d.event
WHERE d.webhook = :webhook AND d.event < :before AND d.state <> 'delivered' AND d.attempt > d.earlier
ORDER BY d.event DESC LIMIT :limit;

-- name: attempts_of
-- Return the attempts of deliveries.
SELECT a.delivery, a.number, a.at, a.status, a.reason, a.error, a.duration_ms, a.answer
FROM rows(:deliveries, key bigint) AS r
JOIN attempt a ON a.delivery = r.key
ORDER BY a.delivery, a.number;

-- name: replayable_by_id
-- Return the events among these ids that can be replayed to a webhook.
-- For a join instead of IN, SQLite would read all of the team's events. Events outside the feed can be replayed only to
-- webhooks that received them.
SELECT e.key, e.id, e.type, e.subject, d.state, d.attempt - d.earlier
FROM event e
LEFT JOIN delivery d ON d.webhook = :webhook AND d.event = e.id
WHERE e.team = :team AND e.id IN (SELECT id FROM rows(:events, id text) AS r)
  AND (e.sequence IS NOT NULL OR d.event IS NOT NULL)
ORDER BY e.id;

-- name: replayable_by_time
-- Return the events of an id and time range that can be replayed to a webhook.
-- The id range is repeated for deliveries, so that PostgreSQL does not read all earlier deliveries for each batch.
SELECT e.key, e.id, e.type, e.subject, d.state, d.attempt - d.earlier
FROM event e
LEFT JOIN delivery d ON d.webhook = :webhook AND d.event = e.id AND d.event > :after AND d.event < :end
WHERE e.team = :team AND e.id > :after AND e.id < :end AND (e.sequence IS NOT NULL OR d.event IS NOT NULL)
  AND e.created_at > :created_after AND e.created_at < :created_before
ORDER BY e.id LIMIT :limit;

-- name: replayable_failed
-- Return the events of an id and time range whose delivery to a webhook failed.
SELECT e.key, e.id, e.type, e.subject, d.state, d.attempt - d.earlier
FROM delivery d
JOIN event e ON e.team = d.team AND e.id = d.event AND e.id > :after AND e.id < :end
WHERE d.webhook = :webhook AND d.event > :after AND d.event < :end
  AND d.state <> 'delivered' AND d.attempt > d.earlier
  AND d.team = :team AND e.created_at > :created_after AND e.created_at < :created_before
ORDER BY d.event LIMIT :limit;

-- name: replay_deliveries
-- Queue deliveries again, or create them.
-- Deliveries that wait for their first attempt are unchanged, because they are already due.
INSERT INTO delivery (webhook, team, event, subject, state, attempt, due_at, created_at)
SELECT :webhook, CAST(:team AS bigint), event, subject, 'waiting', 0, due_at, CAST(:now AS bigint)
FROM rows(:deliveries, event text, subject text, due_at bigint) AS r
WHERE true
ON CONFLICT (webhook, event) DO UPDATE SET state = 'waiting', earlier = delivery.attempt, first_at = NULL,
                                           due_at = excluded.due_at, created_at = excluded.created_at
WHERE delivery.state <> 'waiting' OR delivery.attempt > delivery.earlier;

-- name: clear_endpoint_failure
-- Clear the failure state of an endpoint.
UPDATE endpoint SET failing_since = NULL WHERE webhook = :webhook;

-- name: deliveries_of
-- Return a batch of a webhook's deliveries.
SELECT key FROM delivery WHERE webhook = :webhook LIMIT :limit;

-- name: old_deliveries
-- Return a batch of deliveries created before the retention cutoff.
SELECT key FROM delivery WHERE created_at <= :before ORDER BY created_at LIMIT :limit;

-- name: delete_attempts
-- Delete the attempts of deliveries.
DELETE FROM attempt WHERE delivery IN (SELECT key FROM rows(:deliveries, key bigint) AS r);

-- name: delete_deliveries
-- Delete deliveries.
DELETE FROM delivery WHERE key IN (SELECT key FROM rows(:deliveries, key bigint) AS r);

-- name: delete_endpoint
-- Delete the lease and failure state of an endpoint.
DELETE FROM endpoint WHERE webhook = :webhook;

-- name: failing_endpoints
-- Return the failing endpoints among these webhooks, and since when they fail.
SELECT e.webhook, e.failing_since FROM rows(:webhooks, webhook text) AS r JOIN endpoint e ON e.webhook = r.webhook
WHERE e.failing_since IS NOT NULL;
