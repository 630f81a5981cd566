-- The ledger as people read it, and the accounts of several teams.

-- name: ledger_page
SELECT key, kind, amount, subject, created_at FROM ledger
WHERE team = :team AND key < :before
ORDER BY key DESC LIMIT :limit;

-- name: find_accounts
SELECT a.team, a.available, a.held, a.month, a.used, a.erased, a.sandbox_day, a.sandbox_used, a.octets_day, a.octets_used,
       a.opted_out
FROM rows(:teams, team bigint) AS t JOIN account a ON a.team = t.team;

-- name: ledger_sums
-- With the account in one statement: both databases show it as it was at one moment. A team's entries are made under the
-- lock of its account, so none appears before one that was seen.
SELECT a.available, a.held, l.kind, CAST(sum(l.amount) AS bigint), max(l.key), count(l.key)
FROM account a LEFT JOIN (
    SELECT team, kind, amount, key FROM ledger WHERE team = :team AND key > :after ORDER BY key LIMIT :most
) AS l ON l.team = a.team
WHERE a.team = :team
GROUP BY a.available, a.held, l.kind;

-- name: ledger_after
SELECT key, kind, amount, subject, created_at FROM ledger
WHERE team = :team AND key > :after
ORDER BY key LIMIT :most;

-- name: spend_counted
SELECT key FROM spend_counted WHERE team = :team;

-- name: lock_spend
INSERT INTO spend_counted (team, key) VALUES (:team, 0)
ON CONFLICT (team) DO UPDATE SET key = spend_counted.key
RETURNING key;

-- name: move_spend
UPDATE spend_counted SET key = :key WHERE team = :team;

-- name: add_spend
INSERT INTO spend (team, month, kind, amount, charges)
SELECT team, month, kind, amount, charges
FROM rows(:sums, team bigint, month text, kind text, amount bigint, charges bigint) AS r
WHERE true
ON CONFLICT (team, month, kind) DO UPDATE SET amount = spend.amount + excluded.amount,
                                              charges = spend.charges + excluded.charges;

-- name: team_spend
SELECT month, kind, amount, charges FROM spend WHERE team = :team AND month >= :since;
