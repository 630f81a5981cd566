-- Emails sent and complaints by day, team, source and mailbox provider.

-- name: count_complaint_rates
-- Add to the counters.
INSERT INTO complaint_rate (team, day, source, provider, sends, complaints)
SELECT team, day, source, provider, sends, complaints
FROM rows(:counts, team bigint, day bigint, source text, provider text, sends bigint, complaints bigint) AS r
WHERE true
ON CONFLICT (team, day, source, provider) DO UPDATE SET sends = complaint_rate.sends + excluded.sends,
                                                        complaints = complaint_rate.complaints + excluded.complaints;

-- name: complaint_rates
-- Return the totals of each team, source and provider since a day.
SELECT team, source, provider, CAST(sum(sends) AS BIGINT), CAST(sum(complaints) AS BIGINT)
FROM complaint_rate WHERE day >= :since GROUP BY team, source, provider;

-- name: purge_complaint_rates
-- Delete a batch of old counters.
DELETE FROM complaint_rate WHERE (team, day, source, provider) IN (
    SELECT team, day, source, provider FROM complaint_rate WHERE day <= :before ORDER BY day LIMIT :limit) RETURNING 1;
