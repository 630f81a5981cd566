-- The ledger as people read it, and the accounts of several teams.

-- name: ledger_page
SELECT key, kind, amount, subject, created_at FROM ledger
WHERE team = :team AND key < :before
ORDER BY key DESC LIMIT :limit;

-- name: find_accounts
SELECT a.team, a.available, a.held, a.month, a.used, a.erased, a.sandbox_day, a.sandbox_used
FROM rows(:teams, team bigint) AS t JOIN account a ON a.team = t.team;
