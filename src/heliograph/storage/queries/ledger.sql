-- Ledger pages, spend per month, and accounts of several teams.

-- name: ledger_page
-- Return a page of a team's ledger entries, newest first.
SELECT key, kind, amount, subject, created_at FROM ledger
WHERE team = :team AND key < :before
ORDER BY key DESC LIMIT :limit;

-- name: find_accounts
-- Return the accounts of teams, without locking.
SELECT a.team, a.available, a.held, a.month, a.used, a.erased, a.sandbox_day, a.sandbox_used, a.octets_day, a.octets_used,
       a.opted_out, a.key_uses
FROM rows(:teams, team bigint) AS t JOIN account a ON a.team = t.team;

-- name: ledger_sums
-- Return a team's account with the sums of up to `most` further ledger entries by kind.
-- One statement reads both from the same snapshot. Entries are written under the lock of the account, so no entry
-- appears before one that was already read.
SELECT a.available, a.held, l.kind, CAST(sum(l.amount) AS bigint), max(l.key), count(l.key)
FROM account a LEFT JOIN (
    SELECT team, kind, amount, key FROM ledger WHERE team = :team AND key > :after ORDER BY key LIMIT :most
) AS l ON l.team = a.team
WHERE a.team = :team
GROUP BY a.available, a.held, l.kind;

-- name: ledger_after
-- Return a team's ledger entries after a key, oldest first.
SELECT key, kind, amount, subject, created_at FROM ledger
WHERE team = :team AND key > :after
ORDER BY key LIMIT :most;

-- name: last_summed_entry
-- Return the key of the last ledger entry included in the stored sums.
SELECT key FROM spend_counted WHERE team = :team;

-- name: lock_spend
-- Lock a team's stored sums and return the key of the last included entry.
INSERT INTO spend_counted (team, key) VALUES (:team, 0)
ON CONFLICT (team) DO UPDATE SET key = spend_counted.key
RETURNING key;

-- name: set_last_summed_entry
-- Set the key of the last included entry.
UPDATE spend_counted SET key = :key WHERE team = :team;

-- name: add_spend
-- Add charges to the sums per month and kind.
INSERT INTO spend (team, month, kind, amount, charges)
SELECT team, month, kind, amount, charges
FROM rows(:sums, team bigint, month text, kind text, amount bigint, charges bigint) AS r
WHERE true
ON CONFLICT (team, month, kind) DO UPDATE SET amount = spend.amount + excluded.amount,
                                              charges = spend.charges + excluded.charges;

-- name: team_spend
-- Return a team's sums per month and kind since a month.
SELECT month, kind, amount, charges FROM spend WHERE team = :team AND month >= :since;

-- name: find_credit_reference
-- Return the booking of a reference.
SELECT reference, amount, available, held, created_at FROM credit_reference
WHERE team = :team AND reference = :reference;

-- name: insert_credit_reference
-- Insert the booking of a reference, under the lock of the account.
INSERT INTO credit_reference (team, reference, amount, available, held, created_at)
VALUES (:team, :reference, :amount, :available, :held, :created_at);
