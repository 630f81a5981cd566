-- The accept transaction: a fixed number of statements for any number of messages.

-- name: lock_accounts
-- Lock and return the accounts of these teams, in team order, so that two batches cannot deadlock.
-- Concurrent transactions that use credit or quota wait on these rows.
SELECT team, available, held, month, used, erased, sandbox_day, sandbox_used, octets_day, octets_used,
       opted_out, key_uses
FROM account
WHERE team IN (SELECT team FROM rows(:teams, team bigint) AS t)
ORDER BY team
FOR UPDATE  --postgres
;

-- name: update_accounts
-- Write back credit, quotas and usage of accounts.
UPDATE account SET available = r.available, held = r.held, month = r.month, used = r.used,
                   sandbox_day = r.sandbox_day, sandbox_used = r.sandbox_used, octets_day = r.octets_day,
                   octets_used = r.octets_used, key_uses = r.key_uses
FROM rows(:accounts, team bigint, available bigint, held bigint, month text, used bigint, sandbox_day bigint,
          sandbox_used bigint, octets_day bigint, octets_used bigint, key_uses text) AS r
WHERE account.team = r.team;

-- name: find_suppressed
-- Return the suppressed addresses among these (team, address) pairs.
SELECT s.team, s.address
FROM rows(:addresses, team bigint, address text) AS r
JOIN suppression s ON s.team = r.team AND s.address = r.address;

-- name: find_marketing
-- Return the marketing sends to each address since the given time.
SELECT m.team, m.address, m.created_at
FROM rows(:addresses, team bigint, address text, since bigint) AS r
JOIN marketing m ON m.team = r.team AND m.address = r.address AND m.created_at > r.since
ORDER BY m.created_at;

-- name: insert_marketing
-- Record marketing sends for the frequency limit.
INSERT INTO marketing (team, address, created_at)
SELECT team, address, created_at FROM rows(:rows, team bigint, address text, created_at bigint) AS r;

-- name: next_message_keys
-- Reserve `count` message keys before the insert, so that the rows of all tables are written at once.
-- SQLite has a single writer, so the next keys are computed; PostgreSQL has a sequence.
WITH RECURSIVE next AS (                                                                                  --sqlite
    SELECT max(coalesce((SELECT max(key) FROM message), 0),                                               --sqlite
               coalesce((SELECT c.next FROM counter c WHERE c.name = 'message'), 0)) + 1 AS key           --sqlite
    UNION ALL SELECT key + 1 FROM next LIMIT :count                                                       --sqlite
) SELECT key FROM next                                                                                    --sqlite
SELECT nextval('message_key_seq') FROM generate_series(1, :count)                                         --postgres
;

-- name: insert_messages, many rows at once
-- Insert accepted messages.
INSERT INTO message (key, id, team, channel, status, sandbox, key_id, template_id, template_version, country, price,
                     charge, sequence, created_at, has_body, record, batch, trace, category)
SELECT key, id, team, channel, status, sandbox, key_id, template_id, template_version, country, price, charge, sequence,
       created_at, 1, record, batch, trace, category
FROM rows(:messages, key bigint, id text, team bigint, channel text, status text, sandbox smallint, key_id text,
          template_id text, template_version bigint, country text, price bigint, charge text, sequence bigint,
          created_at bigint, record text, batch text, trace text, category text) AS r;

-- name: insert_contents
-- Insert the contents of messages.
INSERT INTO content (message, body) SELECT message, body FROM rows(:contents, message bigint, body text) AS r;

-- name: insert_shared_contents
-- Insert contents that refer to a text shared by several messages.
INSERT INTO content (message, body, shared)
SELECT message, body, shared FROM rows(:contents, message bigint, body text, shared bigint) AS r;

-- name: insert_shared_texts
-- Insert texts that several messages share.
INSERT INTO shared_text (key, body) SELECT key, body FROM rows(:texts, key bigint, body text) AS r;

-- name: insert_blobs
-- Link attachment files to their messages.
INSERT INTO blob (hash, message) SELECT hash, message FROM rows(:blobs, hash text, message bigint) AS r;

-- name: insert_tags
-- Insert the tags of messages and verifications.
INSERT INTO tag (team, tag, id) SELECT team, tag, id FROM rows(:tags, team bigint, tag bigint, id text) AS r;

-- name: insert_callbacks
-- Insert the callback URLs of individual messages.
INSERT INTO callback (message, url) SELECT message, url FROM rows(:callbacks, message bigint, url text) AS r;

-- name: insert_recipients, many rows at once
-- Insert the recipients of accepted messages.
INSERT INTO recipient (message, position, address, given, kind, status, updated_at, late, detail)
SELECT message, position, address, given, kind, status, updated_at, 0, detail
FROM rows(:recipients, message bigint, position smallint, address text, given text, kind text, status text,
          updated_at bigint, detail text) AS r;

-- name: insert_outbox, many rows at once
-- Queue recipients for delivery.
-- The epoch starts with the current time: SQLite reuses the key of a deleted row, and a lost claim on the old row must
-- not match the new row.
INSERT INTO outbox (lane, team, message, position, promises, due_at, first_at, expires_at, attempt, deferrals, claims,
                    epoch)
SELECT lane, team, message, position, promises, due_at, first_at, expires_at, 0, '{}', 0, first_at
FROM rows(:outbox, lane text, team bigint, message bigint, position smallint, promises text, due_at bigint,
          first_at bigint, expires_at bigint) AS r;

-- name: insert_ledger, many rows at once
-- Append entries to the ledger.
INSERT INTO ledger (team, kind, amount, subject, created_at, turn)
SELECT team, kind, amount, subject, created_at, turn
FROM rows(:entries, team bigint, kind text, amount bigint, subject text, created_at bigint, turn bigint) AS r;

-- name: find_idempotency
-- Return stored responses and leases of idempotency keys.
-- In a row with a response, `owner` is the id of the created object.
SELECT i.key_id, i.hash, i.fingerprint, i.status, i.response, i.lease_until, i.expires_at, i.owner
FROM rows(:keys, key_id text, hash text) AS r
JOIN idempotency i ON i.key_id = r.key_id AND i.hash = r.hash;

-- name: remember_idempotency
-- Take idempotency keys that are new, expired by the team's clock, or abandoned; return the hashes taken.
-- A key that is missing in the result was taken by another process.
INSERT INTO idempotency (key_id, hash, fingerprint, owner, lease_until, status, response, expires_at)
SELECT key_id, hash, fingerprint, owner, lease_until, status, response, expires_at
FROM rows(:keys, key_id text, hash text, fingerprint text, owner text, lease_until bigint, status bigint,
          response text, expires_at bigint) AS r
WHERE true
ON CONFLICT (key_id, hash) DO UPDATE
SET fingerprint = excluded.fingerprint, owner = excluded.owner, lease_until = excluded.lease_until,
    status = excluded.status, response = excluded.response, expires_at = excluded.expires_at
WHERE idempotency.expires_at <= excluded.expires_at - :window OR (idempotency.status IS NULL AND idempotency.lease_until <= :over)
RETURNING hash;

-- name: complete_idempotency
-- Store the response of an idempotent request, if the caller still holds the lease on its key.
-- The lease end is compared too: an execution that stalled beyond its lease must not answer for a later execution in
-- the same process.
UPDATE idempotency SET owner = r.made, status = r.status, response = r.response, expires_at = r.expires_at
FROM rows(:keys, key_id text, hash text, owner text, lease_until bigint, made text, status bigint, response text,
          expires_at bigint) AS r
WHERE idempotency.key_id = r.key_id AND idempotency.hash = r.hash AND idempotency.owner = r.owner
  AND idempotency.lease_until = r.lease_until AND idempotency.status IS NULL
RETURNING idempotency.hash;
