-- What waits, and the dead letters. `substr` is that of the index recipient_dead: it keeps these away from all others.

-- name: waiting_by_team
SELECT lane, team, count(*), CAST(sum(CASE WHEN due_at <= :now THEN 1 ELSE 0 END) AS BIGINT), min(due_at)
FROM outbox WHERE owner IS NULL GROUP BY lane, team ORDER BY min(due_at);

-- name: working_by_team
SELECT lane, team, count(*) FROM outbox WHERE owner IS NOT NULL GROUP BY lane, team;

-- name: waiting_deliveries
SELECT d.webhook, count(*), min(e.failing_since)
FROM delivery d LEFT JOIN endpoint e ON e.webhook = d.webhook
WHERE d.state = 'waiting' GROUP BY d.webhook ORDER BY count(*) DESC;

-- name: dead_letters
SELECT r.message, r.position, m.id, m.team, m.channel, m.has_body, r.given, r.updated_at
FROM recipient r JOIN message m ON m.key = r.message
WHERE substr(r.detail, 1, 23) = '{"reason":"quarantined"' AND (r.message, r.position) < (:message, :position)
ORDER BY r.message DESC, r.position DESC LIMIT :limit;

-- name: leave_dead_letters
UPDATE recipient SET status = :status, detail = :detail, updated_at = :now
WHERE message = :message AND position = :position AND substr(detail, 1, 23) = '{"reason":"quarantined"'
RETURNING position;

-- name: reopen_message
UPDATE message SET ended_at = NULL WHERE key = :message;
