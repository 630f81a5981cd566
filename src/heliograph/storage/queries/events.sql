-- Events, their webhook deliveries, and the event feed.

-- name: insert_events, many rows at once
-- Insert events.
INSERT INTO event (id, team, subject, message, recipient, sequence, type, status, previous_status,
                   message_status, detail, created_at)
SELECT id, team, subject, message, recipient, sequence, type, status, previous_status, message_status, detail,
       created_at
FROM rows(:events, id text, team bigint, subject text, message bigint, recipient text, sequence bigint,
          type text, status text, previous_status text, message_status text, detail text, created_at bigint) AS r
-- A shared advisory lock, held until the transaction ends, shows feed readers of each team the smallest key that the
-- transaction can use (ADR 0043).
WHERE pg_advisory_xact_lock_shared(hashtext('events ' || current_schema() || ' ' || r.team),                     --postgres
    (SELECT last_value + is_called::int FROM event_key_seq)::bit(32)::int) IS NOT NULL                            --postgres
;

-- name: insert_deliveries, many rows at once
-- Queue deliveries of events to subscribed webhooks.
INSERT INTO delivery (webhook, team, event, subject, state, attempt, due_at, created_at)
SELECT webhook, team, event, subject, 'waiting', 0, 0, created_at
FROM rows(:deliveries, webhook text, team bigint, event text, subject text, created_at bigint) AS r;

-- name: insert_own_deliveries
-- Queue deliveries of message events for teams whose webhook signs per-message callbacks.
-- An event goes to the message's callback URL if it has one, otherwise to the webhook if it is subscribed. `own` is the
-- suffix of the separate queue for callback URLs.
INSERT INTO delivery (webhook, team, event, subject, state, attempt, due_at, created_at)
SELECT CASE WHEN c.url IS NULL THEN r.webhook ELSE r.webhook || :own END, r.team, r.event, r.subject, 'waiting', 0, 0,
       r.created_at
FROM rows(:deliveries, webhook text, team bigint, event text, subject text, created_at bigint, message bigint,
          heard smallint) AS r
LEFT JOIN callback c ON c.message = r.message
WHERE c.url IS NOT NULL OR r.heard = 1;

-- name: feed_bounds
-- Return the key of the event `after`, and the key before which the feed is complete.
-- The feed is complete up to the smallest key that an open transaction can have. On PostgreSQL, the locks are read
-- after the snapshot that finds the newest key, and the feed after both.
-- Row comparisons here and below keep PostgreSQL from using event_pkey, which covers the events of all teams.
SELECT b.key,
       b.newest + 1  --sqlite
       CASE WHEN b.newest > coalesce(b.key, 0) THEN (                                                            --postgres
           SELECT least(b.newest + 1, min(b.newest + (l.objid::bigint - b.newest)::bit(32)::int)) FROM pg_locks l  --postgres
           WHERE l.locktype = 'advisory' AND l.objsubid = 2                                                       --postgres
             AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())              --postgres
             AND l.classid::bigint::bit(32)::int = hashtext('events ' || current_schema() || ' ' || :team::bigint)  --postgres
       ) END                                                                                                      --postgres
FROM (SELECT (SELECT i.key FROM event i WHERE i.team = :team AND i.id = :after) AS key,
             (SELECT e.key FROM event e WHERE (e.team, e.key) > (:team, 0) AND (e.team, e.key) < (:team + 1, 0)
                                          AND e.sequence IS NOT NULL
              ORDER BY e.team DESC, e.key DESC LIMIT 1) AS newest) b;

-- name: feed
-- Return published events between two keys, oldest first.
SELECT e.id, e.type, e.sequence, e.created_at, e.recipient, e.status, e.previous_status, e.message_status,
       coalesce(e.detail, x.record),
       m.record, m.sandbox, r.kind
FROM event e
LEFT JOIN message m ON m.key = e.message
LEFT JOIN recipient r ON r.message = e.message AND r.given = e.recipient
LEFT JOIN received x ON e.detail IS NULL AND x.id = e.subject
WHERE (e.team, e.key) > (:team, :after) AND (e.team, e.key) < (:team, :end) AND e.sequence IS NOT NULL
ORDER BY e.team, e.key LIMIT :limit;

-- name: feed_end
-- Return the last published events before a key, newest first.
SELECT e.id, e.type, e.sequence, e.created_at, e.recipient, e.status, e.previous_status, e.message_status,
       coalesce(e.detail, x.record),
       m.record, m.sandbox, r.kind
FROM event e
LEFT JOIN message m ON m.key = e.message
LEFT JOIN recipient r ON r.message = e.message AND r.given = e.recipient
LEFT JOIN received x ON e.detail IS NULL AND x.id = e.subject
WHERE (e.team, e.key) > (:team, 0) AND (e.team, e.key) < (:team, :end) AND e.sequence IS NOT NULL
ORDER BY e.team DESC, e.key DESC LIMIT :limit;

-- name: newest_events
-- Return the newest events of these types before an id.
-- Scans at most `span` events, so that a rare type costs no more than a frequent one.
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

-- name: event_filter_types
-- Return the types of the newest published events of a team.
SELECT DISTINCT type FROM (SELECT type FROM event WHERE team = :team AND id < :before AND sequence IS NOT NULL
                           ORDER BY id DESC LIMIT :most) AS newest;

-- name: scanned_event_range
-- Return the number of events in the scanned range and its smallest id.
SELECT count(*), min(id) FROM (SELECT id FROM event WHERE team = :team AND id < :before AND sequence IS NOT NULL
                               ORDER BY id DESC LIMIT :span) e;
