-- Inbound emails.

-- name: insert_received
-- Insert an inbound email; returns no row if the same email is already stored.
INSERT INTO received (id, team, sender, digest, raw, size, automatic, held, has_body, created_at, record, body)
VALUES (:id, :team, :sender, :digest, :digest, :size, :automatic, :held, 1, :now, :record, :body)
ON CONFLICT (team, digest) DO NOTHING RETURNING id;

-- name: count_automatic
-- Return the number of recent automatic emails from a sender, up to `limit`.
SELECT count(*) FROM (
    SELECT 1 FROM received
    WHERE team = :team AND sender = :sender AND automatic = 1 AND created_at > :since LIMIT :limit) AS r;

-- name: list_received
-- Return a page of inbound emails, newest first, with the size of each record.
SELECT id, sender, size, automatic, held, created_at, octet_length(record), raw FROM received
WHERE team = :team AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: received_records
-- Return the records of inbound emails.
SELECT x.id, x.record FROM rows(:ids, id text) AS r
CROSS JOIN received x INDEXED BY received_by_team  --sqlite
JOIN received x                                    --postgres
ON x.team = :team AND x.id = r.id;

-- name: find_received
-- Return one inbound email with the size of its content.
SELECT id, sender, size, automatic, held, created_at, octet_length(record) + coalesce(octet_length(body), 0), raw
FROM received WHERE team = :team AND id = :id;

-- name: read_received
-- Return the record and the body of an inbound email.
SELECT record, body FROM received WHERE team = :team AND id = :id;

-- name: purge_received_bodies
-- Delete the texts and files of inbound emails.
UPDATE received SET has_body = 0, raw = NULL, body = NULL,
    record = json_set(record, '$.text', NULL, '$.html', NULL, '$.reply_text', NULL)                     --sqlite
    record = CAST(CAST(record AS jsonb) || '{"text": null, "html": null, "reply_text": null}' AS text)  --postgres
WHERE id IN (SELECT id FROM rows(:old, id text) AS r);

-- name: old_received
-- Return a batch of inbound emails whose retention has ended, by team.
-- `own`: cutoffs of teams with their own retention.
SELECT x.id FROM account a LEFT JOIN rows(:own, team bigint, before bigint) AS r ON r.team = a.team
CROSS JOIN received x INDEXED BY received_by_age ON x.team = a.team AND x.has_body = :has_body   --sqlite
    AND x.created_at <= coalesce(r.before, :before)                            --sqlite
CROSS JOIN LATERAL (                                                           --postgres
    SELECT i.id FROM received i WHERE i.team = a.team AND i.has_body = :has_body  --postgres
      AND i.created_at <= coalesce(r.before, :before)                          --postgres
    ORDER BY i.created_at LIMIT :limit) AS x                                   --postgres
LIMIT :limit;

-- name: purge_received
-- Delete inbound emails.
DELETE FROM received WHERE id IN (SELECT id FROM rows(:old, id text) AS r);

-- name: scan_received
-- Return a batch of inbound emails that may contain the address.
batch(received WHERE team = :team | id | record, body | size, created_at);

-- name: erase_received
-- Erase inbound emails including texts and files, which may identify the person in other ways.
UPDATE received SET has_body = 0, raw = NULL, body = nullif(r.body, r.body), sender = '',
    record = json_set(r.record, '$.text', NULL, '$.html', NULL, '$.reply_text', NULL, '$.subject', '[erased]')      --sqlite
    record = CAST(CAST(r.record AS jsonb) || '{"text": null, "html": null, "reply_text": null, "subject": "[erased]"}' AS text)  --postgres
FROM rows(:rows, team bigint, id text, record text, body text) AS r
WHERE received.team = r.team AND received.id = r.id;
