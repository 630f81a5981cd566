-- Phones that opted out of a team's messages.

-- name: find_opted_out
-- Return the opt-outs among these (team, channel, phone) triples.
SELECT o.team, o.channel, o.phone, o.reason FROM rows(:phones, team bigint, channel text, phone text) AS r
JOIN opt_out o ON o.team = r.team AND o.phone = r.phone AND o.channel = r.channel;

-- name: find_opt_outs
-- Return the opt-outs of a phone.
SELECT phone, channel, reason, created_at FROM opt_out WHERE team = :team AND phone = :phone ORDER BY channel;

-- name: list_opt_outs
-- Return a page of opt-outs, newest first, after the last row (time, phone, channel) of the previous page.
SELECT phone, channel, reason, created_at FROM opt_out
WHERE team = :team AND (created_at, phone, channel) < (:at, :phone, :channel)
ORDER BY created_at DESC, phone DESC, channel DESC LIMIT :limit;

-- name: insert_opt_outs
-- Insert opt-outs; an opt-out from marketing can be extended to all messages.
INSERT INTO opt_out (team, phone, channel, reason, created_at)
SELECT team, phone, channel, reason, created_at
FROM rows(:opt_outs, team bigint, phone text, channel text, reason text, created_at bigint) AS r
WHERE true
ON CONFLICT (team, phone, channel) DO UPDATE SET reason = excluded.reason, created_at = excluded.created_at
    WHERE opt_out.reason = 'marketing' AND excluded.reason <> 'marketing'
RETURNING team, phone, channel, reason, created_at;

-- name: mark_opted_out
-- Mark accounts as having opt-outs.
UPDATE account SET opted_out = 1 WHERE opted_out = 0 AND team IN (SELECT team FROM rows(:teams, team bigint) AS r);

-- name: delete_opt_outs
-- Delete the opt-outs of a phone for these channels.
DELETE FROM opt_out WHERE team = :team AND phone = :phone
    AND channel IN (SELECT channel FROM rows(:channels, channel text) AS r)
RETURNING team, phone, channel, reason, created_at;

-- name: deleted_opt_outs
-- Return the data of deleted opt-outs of a phone, because a cursor may refer to a deleted row.
SELECT detail FROM event WHERE team = :team AND subject = :phone AND type = 'opt_out.deleted'
ORDER BY id DESC LIMIT 2;
