-- DMARC and TLS reports about sending domains.

-- name: find_aggregate_report
-- Return a row if the report was stored completely.
SELECT 1 FROM aggregate_report WHERE domain = :domain AND digest = :digest;

-- name: insert_aggregate_report
-- Mark a report as stored.
INSERT INTO aggregate_report (domain, digest, team, created_at) VALUES (:domain, :digest, :team, :now)
ON CONFLICT (domain, digest) DO NOTHING;

-- name: insert_dmarc_sources
-- Insert a batch of a report's sources; those that an interrupted attempt stored are kept.
INSERT INTO dmarc_source (domain, day, address, report, team, known, total, aligned, dkim, spf, created_at)
SELECT domain, day, address, report, team, known, total, aligned, dkim, spf, created_at
FROM rows(:sources, domain text, day bigint, address text, report text, team bigint, known smallint, total bigint,
          aligned bigint, dkim bigint, spf bigint, created_at bigint) AS r
WHERE true
ON CONFLICT (domain, day, address, report) DO NOTHING;

-- name: insert_tls_results
-- Insert a report's TLS results; those that an interrupted attempt stored are kept.
INSERT INTO tls_result (domain, day, type, report, team, sessions, created_at)
SELECT domain, day, type, report, team, sessions, created_at
FROM rows(:results, domain text, day bigint, type text, report text, team bigint, sessions bigint,
          created_at bigint) AS r
WHERE true
ON CONFLICT (domain, day, type, report) DO NOTHING;

-- name: dmarc_totals
-- Return the mails of a domain's sources, as (total, aligned).
SELECT CAST(coalesce(sum(total), 0) AS BIGINT), CAST(coalesce(sum(aligned), 0) AS BIGINT)
FROM dmarc_source WHERE domain = :domain AND day >= :first AND day <= :last;

-- name: dmarc_sources
-- Return the mails of a domain by source, most mails first.
SELECT address, max(known), CAST(sum(total) AS BIGINT), CAST(sum(aligned) AS BIGINT), CAST(sum(dkim) AS BIGINT),
       CAST(sum(spf) AS BIGINT)
FROM dmarc_source WHERE domain = :domain AND day >= :first AND day <= :last
GROUP BY address ORDER BY 3 DESC, 1 LIMIT :limit;

-- name: tls_results
-- Return the TLS sessions of a domain by result.
SELECT type, CAST(sum(sessions) AS BIGINT) FROM tls_result
WHERE domain = :domain AND day >= :first AND day <= :last GROUP BY type ORDER BY 2 DESC, 1;

-- name: delete_aggregate_reports
-- Delete a batch of a domain's reports.
DELETE FROM aggregate_report WHERE (domain, digest) IN (
    SELECT domain, digest FROM aggregate_report WHERE domain = :domain LIMIT :limit) RETURNING 1;

-- name: delete_dmarc_sources
-- Delete a batch of a domain's DMARC sources.
DELETE FROM dmarc_source WHERE (domain, day, address, report) IN (
    SELECT domain, day, address, report FROM dmarc_source WHERE domain = :domain LIMIT :limit) RETURNING 1;

-- name: delete_tls_results
-- Delete a batch of a domain's TLS results.
DELETE FROM tls_result WHERE (domain, day, type, report) IN (
    SELECT domain, day, type, report FROM tls_result WHERE domain = :domain LIMIT :limit) RETURNING 1;

-- name: old_aggregate_reports
-- Return a batch of reports whose retention has ended, by team; team 0 is the platform.
SELECT x.domain, x.digest FROM (SELECT 0 AS team UNION ALL SELECT team FROM account) AS a
LEFT JOIN rows(:own, team bigint, before bigint) AS r ON r.team = a.team
CROSS JOIN aggregate_report x INDEXED BY aggregate_report_by_age ON x.team = a.team          --sqlite
    AND x.created_at <= coalesce(r.before, :before)                                         --sqlite
CROSS JOIN LATERAL (                                                                        --postgres
    SELECT i.domain, i.digest FROM aggregate_report i                                       --postgres
    WHERE i.team = a.team AND i.created_at <= coalesce(r.before, :before)                   --postgres
    ORDER BY i.created_at LIMIT :limit) AS x                                                --postgres
LIMIT :limit;

-- name: purge_aggregate_reports
-- Delete reports.
DELETE FROM aggregate_report
WHERE (domain, digest) IN (SELECT domain, digest FROM rows(:old, domain text, digest text) AS r);

-- name: old_dmarc_sources
-- Return a batch of DMARC sources whose retention has ended, by team.
SELECT x.domain, x.day, x.address, x.report FROM (SELECT 0 AS team UNION ALL SELECT team FROM account) AS a
LEFT JOIN rows(:own, team bigint, before bigint) AS r ON r.team = a.team
CROSS JOIN dmarc_source x INDEXED BY dmarc_source_by_age ON x.team = a.team                  --sqlite
    AND x.created_at <= coalesce(r.before, :before)                                         --sqlite
CROSS JOIN LATERAL (                                                                        --postgres
    SELECT i.domain, i.day, i.address, i.report FROM dmarc_source i                         --postgres
    WHERE i.team = a.team AND i.created_at <= coalesce(r.before, :before)                   --postgres
    ORDER BY i.created_at LIMIT :limit) AS x                                                --postgres
LIMIT :limit;

-- name: purge_dmarc_sources
-- Delete DMARC sources.
DELETE FROM dmarc_source WHERE (domain, day, address, report) IN (
    SELECT domain, day, address, report
    FROM rows(:old, domain text, day bigint, address text, report text) AS r);

-- name: old_tls_results
-- Return a batch of TLS results whose retention has ended, by team.
SELECT x.domain, x.day, x.type, x.report FROM (SELECT 0 AS team UNION ALL SELECT team FROM account) AS a
LEFT JOIN rows(:own, team bigint, before bigint) AS r ON r.team = a.team
CROSS JOIN tls_result x INDEXED BY tls_result_by_age ON x.team = a.team                      --sqlite
    AND x.created_at <= coalesce(r.before, :before)                                         --sqlite
CROSS JOIN LATERAL (                                                                        --postgres
    SELECT i.domain, i.day, i.type, i.report FROM tls_result i                              --postgres
    WHERE i.team = a.team AND i.created_at <= coalesce(r.before, :before)                   --postgres
    ORDER BY i.created_at LIMIT :limit) AS x                                                --postgres
LIMIT :limit;

-- name: purge_tls_results
-- Delete TLS results.
DELETE FROM tls_result WHERE (domain, day, type, report) IN (
    SELECT domain, day, type, report FROM rows(:old, domain text, day bigint, type text, report text) AS r);
