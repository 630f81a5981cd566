-- The trigram search index (ADR 0029): built in blocks of message keys (column `span`), maintained and queried.

-- name: lock_grams
-- Lock the index, so that building, erasing and deleting do not run concurrently.
SELECT next FROM counter WHERE name = 'gram'
FOR UPDATE  --postgres
;

-- name: count_erasure
-- Increase the counter of erasures.
UPDATE counter SET next = next + 1 WHERE name = 'gram' RETURNING next;

-- name: key_ends
-- Return the smallest and the greatest message key.
SELECT (SELECT min(key) FROM message), (SELECT max(key) FROM message);

-- name: key_ends_between
-- Return the smallest and the greatest message key within a range.
SELECT (SELECT min(key) FROM message WHERE key >= :low AND key < :high),
       (SELECT max(key) FROM message WHERE key >= :low AND key < :high);

-- name: indexed_blocks
-- Return the indexed blocks within a range.
SELECT span FROM gram_span WHERE span >= :low AND span <= :high;

-- name: stale_blocks
-- Return blocks that were built before a time and contain deleted messages.
SELECT span FROM gram_span WHERE gone > 0 AND made_at < :before;

-- name: gram_messages
-- Return the messages of a key range for indexing.
SELECT key, id, team, channel, key_id, template_id, created_at, record FROM message
WHERE key >= :low AND key < :high ORDER BY key;

-- name: count_keys
-- Return the number of messages in a key range.
SELECT count(*) FROM message WHERE key >= :low AND key < :high;

-- name: delete_block_grams
-- Delete the index entries of a block.
DELETE FROM gram WHERE span = :span;

-- name: insert_grams
-- Insert index entries.
INSERT INTO gram (span, mark, places)
SELECT span, mark, unhex(places) FROM rows(:grams, span bigint, mark text, places text) AS r;          --sqlite
SELECT span, mark, decode(places, 'hex') FROM rows(:grams, span bigint, mark text, places text) AS r;  --postgres

-- name: insert_block
-- Record that a block was built.
INSERT INTO gram_span (span, made_at, gone) VALUES (:span, :now, 0)
ON CONFLICT (span) DO UPDATE SET made_at = excluded.made_at, gone = 0;

-- name: delete_block
-- Delete the record of a built block.
DELETE FROM gram_span WHERE span = :span;

-- name: count_deleted_in_blocks
-- Add to the number of deleted messages of blocks.
UPDATE gram_span SET gone = gone + r.count FROM rows(:spans, span bigint, count bigint) AS r
WHERE gram_span.span = r.span;

-- name: empty_blocks
-- Return the blocks to drop from the index: those before the first message, and the block of the last message and later
-- ones, because SQLite reuses keys when the newest messages are deleted.
SELECT span FROM gram_span WHERE span < coalesce((SELECT min(key) FROM message) >> 12, 0)
UNION
SELECT span FROM gram_span WHERE span >= coalesce((SELECT max(key) FROM message) >> 12, 0);

-- name: find_grams
-- Return index entries by block and trigram.
SELECT g.span, g.mark, g.places FROM rows(:keys, span bigint, mark text) AS r
CROSS JOIN gram g ON g.span = r.span AND g.mark = r.mark  --sqlite
JOIN gram g ON g.span = r.span AND g.mark = r.mark        --postgres
;

-- name: update_grams
-- Replace the positions of index entries.
UPDATE gram SET places = unhex(r.places)          --sqlite
UPDATE gram SET places = decode(r.places, 'hex')  --postgres
FROM rows(:grams, span bigint, mark text, places text) AS r
WHERE gram.span = r.span AND gram.mark = r.mark;

-- name: delete_grams
-- Delete index entries by block and trigram.
DELETE FROM gram WHERE (span, mark) IN (SELECT span, mark FROM rows(:marks, span bigint, mark text) AS r);

-- name: messages_at
-- Return the messages among the index candidates that match the filters.
SELECT m.key, m.id, m.channel, m.status, m.template_id, m.created_at, m.record, m.key_id
FROM rows(:keys, key bigint) AS r
CROSS JOIN message m ON m.key = r.key  --sqlite
JOIN message m ON m.key = r.key        --postgres
WHERE m.team = :team AND m.created_at > :created_after AND m.created_at < :created_before
  AND (CAST(:status AS text) IS NULL OR m.status = :status)
  AND (CAST(:wrong AS text) IS NULL
       OR (SELECT count(*) FROM recipient p WHERE p.message = m.key AND p.status = :wrong) > 0);

-- name: messages_between
-- Return messages of a key range that are not indexed yet and match the filters.
-- `team + 0` keeps the databases from reading along the team's ids. `needle` is the ASCII part of the search text as
-- JSON encodes it; records with non-ASCII characters are returned and checked by the caller.
SELECT key, id, channel, status, template_id, created_at, record, key_id FROM message
WHERE key >= :low AND key < :high AND team + 0 = :team
  AND created_at > :created_after AND created_at < :created_before
  AND (CAST(:status AS text) IS NULL OR status = :status)
  AND (CAST(:wrong AS text) IS NULL
       OR (SELECT count(*) FROM recipient p WHERE p.message = message.key AND p.status = :wrong) > 0)
  AND (octet_length(record) <> length(record) OR instr(lower(record), :needle) > 0)   --sqlite
  AND (octet_length(record) <> length(record) OR strpos(lower(record), :needle) > 0)  --postgres
ORDER BY key;

-- name: first_key
-- Return the key of a team's first message after an id.
SELECT key FROM message WHERE team = :team AND id > :low ORDER BY id LIMIT 1;

-- name: last_key
-- Return the key of a team's last message before an id.
SELECT key FROM message WHERE team = :team AND id < :high ORDER BY id DESC LIMIT 1;

-- name: ids_between
-- Return the ids of a team's messages within a key range.
SELECT id FROM message
WHERE key >= :low AND key < :high AND team + 0 = :team ORDER BY key;
