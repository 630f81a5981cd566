-- A team's test clock: the next due work by that clock, and the deletion of data when the clock is turned off.

-- name: next_due
-- Return when the team's first work is due by its clock, whether claimed or not.
-- Covers messages, webhooks, deferred emails and codes. The row of a poison-message candidate has its due time moved in
-- advance, in case its worker crashes; while it is claimed, it counts as due.
-- CROSS JOIN and the plus signs keep SQLite from reading all messages and verifications of the team.
SELECT min(due_at) FROM (
    SELECT (SELECT min(o.due_at) FROM outbox o WHERE o.lane = l.lane AND o.owner IS NULL AND o.team = :team) AS due_at
    FROM rows(:lanes, lane text) AS l
    UNION ALL
    SELECT CASE WHEN o.alone > 0 THEN 0 ELSE o.due_at END FROM outbox o WHERE o.owner IS NOT NULL AND o.team = :team
    UNION ALL
    SELECT (SELECT min(d.due_at) FROM delivery d WHERE d.state = 'waiting' AND d.webhook = w.webhook)
    FROM rows(:webhooks, webhook text) AS w
    UNION ALL
    SELECT d.due_at FROM delay d CROSS JOIN message m                                 --sqlite
    WHERE d.due_at > 0 AND m.key = d.message AND +m.team = :team                      --sqlite
    SELECT d.due_at FROM delay d JOIN message m ON m.key = d.message                  --postgres
    WHERE d.due_at > 0 AND m.team = :team                                             --postgres
    UNION ALL
    SELECT v.next_at FROM verification v WHERE v.next_at > 0 AND +v.team = :team
) AS waiting;

-- name: end_messages
-- Mark the team's messages as final, except live messages (sandbox = 0) that are not final yet.
UPDATE message SET ended_at = coalesce(ended_at, created_at)
WHERE team = :team AND (sandbox <> 0 OR ended_at IS NOT NULL) RETURNING key;

-- name: options_of_team
-- Return the optional fields of a team's verifications, for deleting their tags.
SELECT team, id, added FROM verification WHERE team = :team AND added <> '{}';

-- name: delete_orphan_outbox
-- Delete queue rows whose message was deleted.
DELETE FROM outbox WHERE team = :team AND NOT EXISTS (SELECT 1 FROM message m WHERE m.key = outbox.message);

-- name: delete_attempts_of_webhooks
-- Delete the attempts of webhook deliveries.
DELETE FROM attempt WHERE delivery IN (
    SELECT d.key FROM rows(:webhooks, webhook text) AS r JOIN delivery d ON d.webhook = r.webhook);

-- name: delete_deliveries_of_webhooks
-- Delete the deliveries of webhooks.
DELETE FROM delivery WHERE webhook IN (SELECT webhook FROM rows(:webhooks, webhook text) AS r);

-- name: delete_lone_events
-- Delete events of a team that have no message.
DELETE FROM event WHERE team = :team AND NOT EXISTS (SELECT 1 FROM message m WHERE m.key = event.message);

-- name: delete_verifications
-- Delete the team's verifications, except those whose code is being sent, because their process settles the hold.
DELETE FROM verification WHERE team = :team AND owner IS NULL;

-- name: delete_empty_batches
-- Delete batches without messages.
DELETE FROM batch WHERE team = :team AND NOT EXISTS (SELECT 1 FROM message m WHERE m.batch = batch.id);

-- name: delete_received
-- Delete the inbound emails of a team.
DELETE FROM received WHERE team = :team;

-- name: delete_marketing
-- Delete the marketing sends of a team.
DELETE FROM marketing WHERE team = :team;

-- name: delete_conversion
-- Delete the conversion counters of a team.
DELETE FROM conversion WHERE team = :team;

-- name: delete_auto_replies
-- Delete the records of automatic replies of a team.
DELETE FROM text_answer WHERE team = :team;

-- name: reset_account_counters
-- Reset the usage counters of an account.
UPDATE account SET month = '', used = 0, sandbox_day = 0, sandbox_used = 0, octets_day = 0, octets_used = 0,
                   key_uses = ''
WHERE team = :team;

-- name: delete_orphan_idempotency
-- Delete stored responses of the team's API keys whose message was deleted.
DELETE FROM idempotency WHERE key_id IN (SELECT id FROM setting WHERE kind = 'key' AND team = :team)
  AND NOT EXISTS (SELECT 1 FROM message m WHERE m.team = :ref AND m.id = idempotency.owner);
