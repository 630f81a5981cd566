-- Statistics of the overview: outcomes per channel and hour, and the queues of a team.

-- name: count_figures
-- Add outcomes to the counters per team, hour and channel.
INSERT INTO figure (team, hour, channel, sent, delivered, bounced, complained, failed, read)
SELECT team, hour, channel, sent, delivered, bounced, complained, failed, read
FROM rows(:counts, team bigint, hour bigint, channel text, sent bigint, delivered bigint, bounced bigint,
          complained bigint, failed bigint, read bigint) AS r
WHERE true
ON CONFLICT (team, hour, channel) DO UPDATE SET sent = figure.sent + excluded.sent,
                                                delivered = figure.delivered + excluded.delivered,
                                                bounced = figure.bounced + excluded.bounced,
                                                complained = figure.complained + excluded.complained,
                                                failed = figure.failed + excluded.failed,
                                                read = figure.read + excluded.read;

-- name: team_figures
-- Return a team's counters in intervals of `width` ms from `since` on.
-- `since` is the start of a day in the reader's time zone, so that days match that time zone.
SELECT hour - (hour - CAST(:since AS bigint)) % CAST(:width AS bigint), channel, CAST(sum(sent) AS BIGINT), CAST(sum(delivered) AS BIGINT),
       CAST(sum(bounced) AS BIGINT), CAST(sum(complained) AS BIGINT), CAST(sum(failed) AS BIGINT),
       CAST(sum(read) AS BIGINT)
FROM figure WHERE team = :team AND hour >= :since
GROUP BY 1, 2;

-- name: usage_figures
-- Return a team's counters per channel within a period.
SELECT channel, CAST(sum(sent) AS BIGINT), CAST(sum(delivered) AS BIGINT), CAST(sum(bounced) AS BIGINT),
       CAST(sum(complained) AS BIGINT), CAST(sum(failed) AS BIGINT), CAST(sum(read) AS BIGINT)
FROM figure WHERE team = :team AND hour >= :since AND hour < :until
GROUP BY channel;

-- name: instance_figures
-- Return the sends of each team since a time, and its email sends, bounces and complaints.
-- `+team` keeps SQLite from reading the whole table in team order.
SELECT +team, CAST(sum(sent) AS BIGINT), CAST(sum(CASE WHEN channel = 'email' THEN sent ELSE 0 END) AS BIGINT),
       CAST(sum(CASE WHEN channel = 'email' THEN bounced ELSE 0 END) AS BIGINT),
       CAST(sum(CASE WHEN channel = 'email' THEN complained ELSE 0 END) AS BIGINT)
FROM figure WHERE hour >= :since GROUP BY 1;

-- name: figures_of_teams
-- Return the same totals as instance_figures, for the given teams.
SELECT f.team, CAST(sum(f.sent) AS BIGINT), CAST(sum(CASE WHEN f.channel = 'email' THEN f.sent ELSE 0 END) AS BIGINT),
       CAST(sum(CASE WHEN f.channel = 'email' THEN f.bounced ELSE 0 END) AS BIGINT),
       CAST(sum(CASE WHEN f.channel = 'email' THEN f.complained ELSE 0 END) AS BIGINT)
FROM rows(:teams, team bigint) AS t JOIN figure f ON f.team = t.team AND f.hour >= :since
GROUP BY f.team;

-- name: sent_by_hour
-- Return the number of sends of each team per hour.
SELECT f.team, f.hour, CAST(sum(f.sent) AS BIGINT)
FROM rows(:teams, team bigint) AS t JOIN figure f ON f.team = t.team AND f.hour >= :since
GROUP BY f.team, f.hour;

-- name: team_queue
-- Return per lane the number of waiting rows, up to `most`, and the first due time.
-- ORDER BY is that of the index outbox_due; without it, PostgreSQL may read the whole queue.
SELECT l.lane,
       (SELECT count(*) FROM (SELECT 1 FROM outbox o WHERE o.lane = l.lane AND o.team = :team AND o.owner IS NULL
                              ORDER BY o.due_at LIMIT :most) AS waiting),
       (SELECT min(o.due_at) FROM outbox o WHERE o.lane = l.lane AND o.team = :team AND o.owner IS NULL)
FROM rows(:lanes, lane text) AS l;

-- name: team_held
-- Return how many messages of a channel are held for a reason of our own (held_at).
-- Only the next `most` due rows of each lane are counted.
SELECT (SELECT count(*) FROM (SELECT o.message, o.held_at FROM outbox o
                              WHERE o.lane = l.lane AND o.team = :team AND o.owner IS NULL
                              ORDER BY o.due_at LIMIT :most) AS next
        JOIN message m ON m.key = next.message WHERE next.held_at IS NOT NULL AND m.channel = :channel)
FROM rows(:lanes, lane text) AS l;

-- name: purge_figures
-- Delete a batch of old counters.
DELETE FROM figure WHERE (team, hour, channel) IN (
    SELECT team, hour, channel FROM figure WHERE hour <= :before ORDER BY hour LIMIT :limit) RETURNING 1;
