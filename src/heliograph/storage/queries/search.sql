-- Queries of the pages about messages and verifications. Ids are ordered by time within a channel's prefix.

-- name: index_recipients
-- Add recipients to the recipient search index.
INSERT INTO seen_recipient (span, team, address, message)
SELECT message >> 12, team, address, message FROM rows(:seen, team bigint, address text, message bigint) AS r
WHERE true
ON CONFLICT DO NOTHING;

-- name: purge_recipient_index
-- Delete messages from the recipient search index.
DELETE FROM seen_recipient
WHERE (span, team, address, message) IN (
    SELECT r.message >> 12, m.team, p.address, r.message FROM rows(:messages, message bigint) AS r
    JOIN message m ON m.key = r.message
    JOIN recipient p ON p.message = r.message
);

-- name: search_messages
-- Return a page of messages by id range and creation time, newest first.
SELECT key, id, channel, status, template_id, created_at, record FROM message
WHERE team = :team AND id > :low AND id < :high AND created_at > :created_after AND created_at < :created_before
ORDER BY id DESC LIMIT :limit;

-- name: list_messages_by_id
-- Return messages of a team by id.
SELECT m.key, m.id, m.channel, m.status, m.template_id, m.created_at, m.record
FROM rows(:ids, id text) AS r
CROSS JOIN message m ON m.team = :team AND m.id = r.id  --sqlite
JOIN message m ON m.team = :team AND m.id = r.id        --postgres
;

-- name: tagged_messages
-- Return a page of messages with a tag, newest first.
-- CROSS JOIN, and ORDER BY on the tag only, keep the databases from scanning all messages of the team.
SELECT m.key, m.id, m.channel, m.status, m.template_id, m.created_at, m.record FROM tag t
CROSS JOIN message m ON m.team = t.team AND m.id = t.id  --sqlite
JOIN message m ON m.team = t.team AND m.id = t.id        --postgres
WHERE t.team = :team AND t.tag = :tag AND t.id > :low AND t.id < :high
  AND m.created_at > :created_after AND m.created_at < :created_before
  AND (CAST(:status AS text) IS NULL OR m.status = :status)
  AND (CAST(:template_id AS text) IS NULL OR m.template_id = :template_id)
  AND (CAST(:address AS text) IS NULL
       OR (SELECT count(*) FROM recipient r WHERE r.message = m.key AND r.address = :address) > 0)
ORDER BY t.id DESC LIMIT :limit;

-- name: failed_messages
-- Return ids of messages that had a bounced, complained or failed recipient at any time.
-- DISTINCT, because several events of a message can match.
SELECT DISTINCT subject FROM event
WHERE team = :team AND status = :status AND subject > :low AND subject < :high
  AND message IS NOT NULL AND status IN ('bounced', 'complained', 'failed')
ORDER BY subject DESC LIMIT :limit;

-- name: still_failed
-- Return the messages among these that still have a recipient in this state.
-- A late delivery report can replace a failure.
SELECT m.key, m.id, m.channel, m.status, m.template_id, m.created_at, m.record, m.key_id
FROM rows(:ids, id text) AS r
CROSS JOIN message m ON m.team = :team AND m.id = r.id  --sqlite
JOIN message m ON m.team = :team AND m.id = r.id        --postgres
WHERE m.created_at > :created_after AND m.created_at < :created_before
  AND (SELECT count(*) FROM recipient p WHERE p.message = m.key AND p.status = :status) > 0;

-- name: count_messages
-- Return the number of messages in an id range, up to `most`.
SELECT count(*) FROM (SELECT 1 FROM message WHERE team = :team AND id > :low AND id < :high LIMIT :most) AS counted;

-- name: count_in_states
-- Return the number of messages in these states and templates, up to `most`.
SELECT count(*) FROM (
    SELECT 1 FROM rows(:states, status text, template text) AS r
    CROSS JOIN message i ON i.team = :team AND i.status = r.status                     --sqlite
        AND coalesce(i.template_id, '') = r.template AND i.id > :low AND i.id < :high  --sqlite
    CROSS JOIN LATERAL (                                                               --postgres
        SELECT 1 FROM message i WHERE i.team = :team AND i.status = r.status           --postgres
          AND coalesce(i.template_id, '') = r.template AND i.id > :low AND i.id < :high ORDER BY i.id DESC  --postgres
        LIMIT :most) AS i                                                              --postgres
    LIMIT :most
) AS counted;

-- name: states_of_tagged
-- Return the number of messages with a tag by status, for the newest `most`.
-- CROSS JOIN keeps SQLite from reading all messages of the team.
SELECT m.status, count(*) FROM (
    SELECT id FROM tag WHERE team = :team AND tag = :tag AND id > :low AND id < :high ORDER BY id DESC LIMIT :most
) AS t
CROSS JOIN message m ON m.team = :team AND m.id = t.id  --sqlite
JOIN message m ON m.team = :team AND m.id = t.id        --postgres
GROUP BY m.status;

-- name: count_failed
-- Return the number of messages that had a recipient in this state, up to `most`.
SELECT count(*) FROM (
    SELECT DISTINCT subject FROM event
    WHERE team = :team AND status = :status AND subject > :low AND subject < :high
      AND message IS NOT NULL AND status IN ('bounced', 'complained', 'failed')
    LIMIT :most
) AS counted;

-- name: recipients_in_states
-- Return the number of recipients of each message by status.
SELECT p.message, p.status, count(*) FROM rows(:messages, message bigint) AS r
JOIN recipient p ON p.message = r.message GROUP BY p.message, p.status;

-- name: templates_in_states
-- Return the templates of messages in these states; '' stands for messages without a template.
-- Skips from template to template along the index.
WITH RECURSIVE used (status, template) AS (
    SELECT r.status, (SELECT coalesce(template_id, '') FROM message WHERE team = :team AND status = r.status
                      ORDER BY coalesce(template_id, '') LIMIT 1)
    FROM rows(:states, status text) AS r
    UNION ALL
    SELECT u.status, (SELECT coalesce(template_id, '') FROM message WHERE team = :team AND status = u.status
                      AND coalesce(template_id, '') > u.template ORDER BY coalesce(template_id, '') LIMIT 1)
    FROM used u WHERE u.template IS NOT NULL
)
SELECT status, template FROM used WHERE template IS NOT NULL;

-- name: messages_in_states
-- Return the newest messages in these states and templates.
WITH found AS MATERIALIZED (
    SELECT m.key, m.id FROM rows(:states, status text, template text) AS r
    JOIN message m ON m.key IN (                                                                        --sqlite
        SELECT i.key FROM message i                                                                     --sqlite
    CROSS JOIN LATERAL (                                                                                --postgres
        SELECT i.key, i.id FROM message i                                                               --postgres
        WHERE i.team = :team AND i.status = r.status AND coalesce(i.template_id, '') = r.template
          AND i.id > :low AND i.id < :high AND i.created_at > :created_after AND i.created_at < :created_before
        ORDER BY i.id DESC LIMIT :limit
    )                                                                                                   --sqlite
    ) AS m                                                                                              --postgres
    ORDER BY m.id DESC LIMIT :limit
)
SELECT m.key, m.id, m.channel, m.status, m.template_id, m.created_at, m.record
FROM found f JOIN message m ON m.key = f.key ORDER BY m.id DESC;

-- name: message_key_before
-- Return the newest message with an id not greater than `id`.
SELECT key, id FROM message WHERE team = :team AND id <= :id ORDER BY id DESC LIMIT 1;

-- name: recipient_index_range
-- Return the first and the last block of the recipient search index.
-- There are two subqueries, because SQLite would read the whole table for both in one.
SELECT (SELECT min(span) FROM seen_recipient), (SELECT max(span) FROM seen_recipient);

-- name: next_recipient_block
-- Return the greatest block of the recipient search index below a block.
SELECT max(span) FROM seen_recipient WHERE span < :span;

-- name: search_recipient_index
-- Return messages to an address from these blocks of the recipient search index, newest first.
SELECT m.key, m.id, m.channel, m.status, m.template_id, m.created_at, m.record
FROM rows(:spans, span bigint) AS r
JOIN seen_recipient s ON s.span = r.span AND s.team = :team AND s.address = :address AND s.message < :before
JOIN message m ON m.key = s.message
WHERE m.created_at > :created_after AND m.created_at < :created_before
  AND (CAST(:channel AS text) IS NULL OR m.channel = :channel)
  AND (CAST(:status AS text) IS NULL OR m.status = :status)
  AND (CAST(:template_id AS text) IS NULL OR m.template_id = :template_id)
ORDER BY m.key DESC LIMIT :limit;

-- name: search_queued
-- Return queued messages to an address, which are not in the recipient search index before the first attempt.
-- Reads all queued rows of the team (see erase.sql). CROSS JOIN keeps SQLite from scanning all messages, as the order by
-- key suggests.
WITH queue AS (
    SELECT o.message FROM rows(:lanes, lane text) AS l
    JOIN outbox o ON o.lane = l.lane AND o.team = :team AND o.owner IS NULL
    UNION
    SELECT message FROM outbox WHERE owner IS NOT NULL AND team = :team
)
SELECT m.key, m.id, m.channel, m.status, m.template_id, m.created_at, m.record
FROM queue q
CROSS JOIN message m ON m.key = q.message  --sqlite
JOIN message m ON m.key = q.message        --postgres
WHERE m.key < :before AND m.created_at > :created_after AND m.created_at < :created_before
  AND (CAST(:channel AS text) IS NULL OR m.channel = :channel)
  AND (CAST(:status AS text) IS NULL OR m.status = :status)
  AND (CAST(:template_id AS text) IS NULL OR m.template_id = :template_id)
  AND (SELECT count(*) FROM recipient r WHERE r.message = m.key AND r.address = :address) > 0
ORDER BY m.key DESC LIMIT :limit;

-- name: message_details
-- Return a message with its content, if the content is not longer than :most.
-- Longer contents are read separately, after a memory reservation.
SELECT m.key, m.id, m.channel, m.status, m.sandbox, m.key_id, m.template_id, m.template_version, m.country, m.price,
       m.charge, m.created_at, m.ended_at, m.record,
       CASE WHEN c.octets <= :most THEN c.body END, m.batch, coalesce(c.octets, 0)
FROM message m LEFT JOIN whole_content c ON c.message = m.key WHERE m.team = :team AND m.id = :id;

-- name: message_version
-- Return the version of a message page, which changes with the timeline.
SELECT m.ended_at, (SELECT max(e.key) FROM event e WHERE e.message = m.key) FROM message m
WHERE m.team = :team AND m.id = :id;

-- name: team_lists_version
-- Return the version of a team's lists and overview.
-- Contains the newest rows, and counters that grow in the same transactions, so that a row with an earlier id that is
-- written later is noticed too. Reads only the ends of indexes.
SELECT (SELECT max(id) FROM message WHERE team = :team AND id < :email),
       (SELECT max(id) FROM message WHERE team = :team AND id < :sms),
       (SELECT max(id) FROM message WHERE team = :team),
       (SELECT max(id) FROM event WHERE team = :team),
       (SELECT CAST(sum(sent + delivered + bounced + complained + failed + read) AS BIGINT)
        FROM figure WHERE team = :team AND hour >= :hour),
       a.available, a.held, a.used, (SELECT at FROM inbox_cleared WHERE team = :team), v.newest, v.wrong, v.pending
FROM (SELECT max(id) AS newest, CAST(sum(wrong) AS BIGINT) AS wrong,
             count(CASE WHEN status = 'pending' AND expires_at > :now THEN 1 END) AS pending
      FROM (SELECT id, wrong, status, expires_at FROM verification WHERE team = :team
            ORDER BY id DESC LIMIT :shown) AS shown) AS v
LEFT JOIN account a ON a.team = :team;

-- name: webhook_version
-- Return the version of a webhook page: its first page of deliveries and its failure state.
SELECT max(event), count(*), CAST(sum(attempt) AS BIGINT), CAST(sum(created_at) AS BIGINT),
       count(CASE WHEN state = 'waiting' THEN 1 END),
       (SELECT failing_since FROM endpoint WHERE webhook = :webhook)
FROM (SELECT event, attempt, created_at, state FROM delivery WHERE webhook = :webhook
      ORDER BY event DESC LIMIT :shown) AS shown;

-- name: queues_version
-- Return the version of the queues page.
-- Counts no further than `most`, because a longer queue changes at its ends. Waiting rows are represented by the sum of
-- due_at, because a simulated report reuses the row of the sent message.
SELECT (SELECT min(key) FROM outbox), (SELECT max(key) FROM outbox),
       (SELECT CAST(sum(due_at) AS BIGINT) FROM (SELECT due_at FROM outbox WHERE owner IS NULL LIMIT :most) AS waiting),
       (SELECT count(*) FROM (SELECT 1 FROM outbox WHERE owner IS NOT NULL LIMIT :most) AS working),
       (SELECT count(*) FROM (SELECT 1 FROM delivery WHERE state = 'waiting' LIMIT :most) AS untold),
       (SELECT max(message) FROM recipient WHERE substr(detail, 1, 23) = '{"reason":"quarantined"'),
       (SELECT count(*) FROM (SELECT 1 FROM recipient WHERE substr(detail, 1, 23) = '{"reason":"quarantined"'
                              LIMIT :most) AS dead);

-- name: deliveries_of_events
-- Return the deliveries of these (webhook, event) pairs.
SELECT d.key, d.event, d.webhook, d.state, d.attempt FROM rows(:pairs, webhook text, event text) AS r
JOIN delivery d ON d.webhook = r.webhook AND d.event = r.event
ORDER BY d.key;

-- A pending verification after `expires_at` is shown as expired, even if its row was not updated yet.

-- name: search_verifications
-- Return a page of verifications by id range and creation time, newest first.
SELECT id, phone, CASE WHEN status = 'pending' AND expires_at <= :now THEN 'expired' ELSE status END,
       sandbox, wrong, price, charge, error_message, key_id, created_at, expires_at, simulated,
       coalesce(given, phone), channel, channels, resent, added, reason
FROM verification
WHERE team = :team AND id > :low AND id < :high AND created_at > :created_after AND created_at < :created_before
ORDER BY id DESC LIMIT :limit;

-- name: verifications_in_state
-- Return a page of verifications in a state, newest first.
-- `stored` is the state in the table. INDEXED BY keeps SQLite from using the unique index on ids.
SELECT id, phone, CASE WHEN status = 'pending' AND expires_at <= :now THEN 'expired' ELSE status END,
       sandbox, wrong, price, charge, error_message, key_id, created_at, expires_at, simulated,
       coalesce(given, phone), channel, channels, resent, added, reason
FROM verification
INDEXED BY verification_by_state  --sqlite
WHERE team = :team AND status = :stored AND id > :low AND id < :high
  AND created_at > :created_after AND created_at < :created_before
  AND CASE WHEN status = 'pending' AND expires_at <= :now THEN 'expired' ELSE status END = :status
ORDER BY id DESC LIMIT :limit;

-- name: find_verification
-- Return one verification of a team.
SELECT id, phone, CASE WHEN status = 'pending' AND expires_at <= :now THEN 'expired' ELSE status END,
       sandbox, wrong, price, charge, error_message, key_id, created_at, expires_at, simulated,
       coalesce(given, phone), channel, channels, resent, added, reason
FROM verification WHERE team = :team AND id = :id;

-- name: tagged_verifications
-- Return a page of verifications with a tag, newest first.
SELECT v.id, v.phone, CASE WHEN v.status = 'pending' AND v.expires_at <= :now THEN 'expired' ELSE v.status END,
       v.sandbox, v.wrong, v.price, v.charge, v.error_message, v.key_id, v.created_at, v.expires_at, v.simulated,
       coalesce(v.given, v.phone), v.channel, v.channels, v.resent, v.added, v.reason
FROM tag t
CROSS JOIN verification v ON v.team = t.team AND v.id = t.id  --sqlite
JOIN verification v ON v.team = t.team AND v.id = t.id        --postgres
WHERE t.team = :team AND t.tag = :tag AND t.id > :low AND t.id < :high
  AND v.created_at > :created_after AND v.created_at < :created_before
  AND (CAST(:phone AS text) IS NULL OR v.phone = :phone)
  AND (CAST(:status AS text) IS NULL
       OR CASE WHEN v.status = 'pending' AND v.expires_at <= :now THEN 'expired' ELSE v.status END = :status)
ORDER BY t.id DESC LIMIT :limit;

-- name: search_phone
-- Return a page of verifications of a phone, newest first.
-- Uses the index on phones, because a phone has so few verifications that sorting is cheap.
SELECT id, phone, CASE WHEN status = 'pending' AND expires_at <= :now THEN 'expired' ELSE status END,
       sandbox, wrong, price, charge, error_message, key_id, created_at, expires_at, simulated,
       coalesce(given, phone), channel, channels, resent, added, reason
FROM verification
WHERE team = :team AND phone = :phone AND id > :low AND id < :high
  AND created_at > :created_after AND created_at < :created_before
  AND (CAST(:status AS text) IS NULL
       OR CASE WHEN status = 'pending' AND expires_at <= :now THEN 'expired' ELSE status END = :status)
ORDER BY created_at DESC, id DESC LIMIT :limit;
