-- The index of parts of texts (ADR 0029): built span by span, kept small, asked.

-- name: lock_grams
-- Whoever builds, erases or deletes does it one after the other.
SELECT next FROM counter WHERE name = 'gram'
FOR UPDATE  --postgres
;

-- name: grams_erased
UPDATE counter SET next = next + 1 WHERE name = 'gram' RETURNING next;

-- name: key_ends
SELECT (SELECT min(key) FROM message), (SELECT max(key) FROM message);

-- name: key_ends_between
SELECT (SELECT min(key) FROM message WHERE key >= :low AND key < :high),
       (SELECT max(key) FROM message WHERE key >= :low AND key < :high);

-- name: gram_spans
SELECT span FROM gram_span WHERE span >= :low AND span <= :high;

-- name: worn_spans
SELECT span FROM gram_span WHERE gone > 0 AND made_at < :before;

-- name: gram_messages
SELECT key, id, team, channel, key_id, template_id, created_at, record FROM message
WHERE key >= :low AND key < :high ORDER BY key;

-- name: count_keys
SELECT count(*) FROM message WHERE key >= :low AND key < :high;

-- name: drop_grams
DELETE FROM gram WHERE span = :span;

-- name: insert_grams
INSERT INTO gram (span, mark, places)
SELECT span, mark, unhex(places) FROM rows(:grams, span bigint, mark text, places text) AS r;          --sqlite
SELECT span, mark, decode(places, 'hex') FROM rows(:grams, span bigint, mark text, places text) AS r;  --postgres

-- name: note_span
INSERT INTO gram_span (span, made_at, gone) VALUES (:span, :now, 0)
ON CONFLICT (span) DO UPDATE SET made_at = excluded.made_at, gone = 0;

-- name: forget_span
DELETE FROM gram_span WHERE span = :span;

-- name: count_gone
UPDATE gram_span SET gone = gone + r.count FROM rows(:spans, span bigint, count bigint) AS r
WHERE gram_span.span = r.span;

-- name: empty_spans
-- Before the first message or at the last one: SQLite gives keys again when the newest messages are deleted.
SELECT span FROM gram_span WHERE span < coalesce((SELECT min(key) FROM message) >> 12, 0)
UNION
SELECT span FROM gram_span WHERE span >= coalesce((SELECT max(key) FROM message) >> 12, 0);

-- name: grams_at
SELECT g.span, g.mark, g.places FROM rows(:wanted, span bigint, mark text) AS r
CROSS JOIN gram g ON g.span = r.span AND g.mark = r.mark  --sqlite
JOIN gram g ON g.span = r.span AND g.mark = r.mark        --postgres
;

-- name: update_grams
UPDATE gram SET places = unhex(r.places)          --sqlite
UPDATE gram SET places = decode(r.places, 'hex')  --postgres
FROM rows(:grams, span bigint, mark text, places text) AS r
WHERE gram.span = r.span AND gram.mark = r.mark;

-- name: delete_grams
DELETE FROM gram WHERE (span, mark) IN (SELECT span, mark FROM rows(:marks, span bigint, mark text) AS r);

-- name: messages_at
-- The candidates of the index.
SELECT m.key, m.id, m.channel, m.status, m.template_id, m.created_at, m.record, m.key_id
FROM rows(:keys, key bigint) AS r
CROSS JOIN message m ON m.key = r.key  --sqlite
JOIN message m ON m.key = r.key        --postgres
WHERE m.team = :team AND m.created_at > :created_after AND m.created_at < :created_before
  AND (CAST(:status AS text) IS NULL OR m.status = :status)
  AND (CAST(:wrong AS text) IS NULL
       OR (SELECT count(*) FROM recipient p WHERE p.message = m.key AND p.status = :wrong) > 0);

-- name: messages_between
-- What is not in the index yet. `+ 0`: else it is read along the team's ids. `needle` is a part in ASCII as JSON writes it: other records are judged one by one.
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
SELECT key FROM message WHERE team = :team AND id > :low ORDER BY id LIMIT 1;

-- name: last_key
SELECT key FROM message WHERE team = :team AND id < :high ORDER BY id DESC LIMIT 1;

-- name: ids_between
SELECT id FROM message
WHERE key >= :low AND key < :high AND team + 0 = :team ORDER BY key;
