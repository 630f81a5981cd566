-- Email bounces and complaints per team and hour, and the resulting reputation of each team.

-- name: count_reputation
-- Add sends, bounces and complaints to the counters per team and hour.
INSERT INTO reputation (team, hour, sends, bounces, complaints)
SELECT team, hour, sends, bounces, complaints
FROM rows(:counts, team bigint, hour bigint, sends bigint, bounces bigint, complaints bigint) AS r
WHERE true
ON CONFLICT (team, hour) DO UPDATE SET sends = reputation.sends + excluded.sends,
                                       bounces = reputation.bounces + excluded.bounces,
                                       complaints = reputation.complaints + excluded.complaints;

-- name: newest_reputation
-- Return the totals of each team's newest hours, until these contain `enough` sends.
SELECT team, CAST(sum(sends) AS BIGINT), CAST(sum(bounces) AS BIGINT), CAST(sum(complaints) AS BIGINT)
FROM (
    SELECT team, sends, bounces, complaints, sum(sends) OVER (PARTITION BY team ORDER BY hour DESC) - sends AS newer
    FROM reputation WHERE hour > :after
) AS hours
WHERE newer < :enough
GROUP BY team;

-- name: delete_reputation
-- Delete the counters of a team.
DELETE FROM reputation WHERE team = :team;

-- name: purge_reputation
-- Delete a batch of old counters.
DELETE FROM reputation WHERE (team, hour) IN (
    SELECT team, hour FROM reputation WHERE hour <= :before ORDER BY hour LIMIT :limit) RETURNING 1;

-- name: next_reputation_version
-- Increase and return the version of reputations; this also serialises writers.
UPDATE counter SET next = next + 1 WHERE name = 'judgement' RETURNING next;

-- name: reputations_since
-- Return the reputations that changed since a version.
SELECT version, body FROM judgement WHERE version > :since ORDER BY version;

-- name: reputations_of
-- Return the reputations of teams.
SELECT team, body FROM judgement WHERE team IN (SELECT team FROM rows(:teams, team text) AS r);

-- name: save_reputations
-- Insert or replace reputations.
INSERT INTO judgement (team, version, body)
SELECT team, version, body FROM rows(:judgements, team text, version bigint, body text) AS r
WHERE true
ON CONFLICT (team) DO UPDATE SET version = excluded.version, body = excluded.body;
