-- The last DNS results of sending domains. Whether a domain is verified is part of the setup.

-- name: domain_checks
-- Return the checks of these domains.
SELECT domain, checked_at, since, next_at, zone, records FROM domain_check
WHERE domain IN (SELECT domain FROM rows(:domains, domain text) AS r);

-- name: save_domain_check
-- Insert or replace the check of a domain.
INSERT INTO domain_check (domain, checked_at, since, next_at, zone, records)
VALUES (:domain, :checked_at, :since, :next_at, :zone, :records)
ON CONFLICT (domain) DO UPDATE SET checked_at = excluded.checked_at, since = excluded.since,
    next_at = excluded.next_at, zone = excluded.zone, records = excluded.records;

-- name: schedule_domain_check
-- Schedule an immediate check of a domain.
INSERT INTO domain_check (domain, since, next_at) VALUES (:domain, :now, :now)
ON CONFLICT (domain) DO UPDATE SET since = excluded.since, next_at = excluded.next_at;

-- name: claim_domain_checks
-- Claim due checks by moving their time to `until`, so that other processes skip these checks.
UPDATE domain_check SET next_at = :until
WHERE next_at <= :now
  AND domain IN (SELECT domain FROM domain_check WHERE next_at <= :now ORDER BY next_at LIMIT :most)
RETURNING domain, since;

-- name: delete_domain_check
-- Delete the check of a domain.
DELETE FROM domain_check WHERE domain = :domain;
