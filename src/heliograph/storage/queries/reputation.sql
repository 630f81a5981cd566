-- Bounces and complaints of each team's email, counted by the hour.

-- name: count_reputation
INSERT INTO reputation (team, hour, sends, bounces, complaints)
SELECT team, hour, sends, bounces, complaints
FROM rows(:counts, team bigint, hour bigint, sends bigint, bounces bigint, complaints bigint) AS r
WHERE true
ON CONFLICT (team, hour) DO UPDATE SET sends = reputation.sends + excluded.sends,
                                       bounces = reputation.bounces + excluded.bounces,
                                       complaints = reputation.complaints + excluded.complaints;

-- name: newest_reputation
-- Each team's newest hours until they hold enough sends.
SELECT team, CAST(sum(sends) AS BIGINT), CAST(sum(bounces) AS BIGINT), CAST(sum(complaints) AS BIGINT)
FROM (
    SELECT team, sends, bounces, complaints, sum(sends) OVER (PARTITION BY team ORDER BY hour DESC) - sends AS newer
    FROM reputation WHERE hour > :after
) AS hours
WHERE newer < :enough
GROUP BY team;

-- name: forget_reputation
DELETE FROM reputation WHERE team = :team;

-- name: purge_reputation
DELETE FROM reputation WHERE (team, hour) IN (
    SELECT team, hour FROM reputation WHERE hour <= :before ORDER BY hour LIMIT :limit) RETURNING 1;

-- name: next_judgement_version
UPDATE counter SET next = next + 1 WHERE name = 'judgement' RETURNING next;

-- name: judgements_since
SELECT version, body FROM judgement WHERE version > :since ORDER BY version;

-- name: judgements_of
SELECT team, body FROM judgement WHERE team IN (SELECT team FROM rows(:teams, team text) AS r);

-- name: save_judgements
INSERT INTO judgement (team, version, body)
SELECT team, version, body FROM rows(:judgements, team text, version bigint, body text) AS r
WHERE true
ON CONFLICT (team) DO UPDATE SET version = excluded.version, body = excluded.body;
