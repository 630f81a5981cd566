-- Attachment files above 256 KB, where the database (PostgreSQL) or an object store is their place.

-- name: own_blobs
-- The service's name in an object store, made once.
INSERT INTO counter (name, next) VALUES ('blobs', :fresh)
ON CONFLICT (name) DO UPDATE SET next = counter.next RETURNING next;

-- name: touch_blob
-- Unless it is in an object store that this process does not know.
UPDATE blob_file SET put_at = :now WHERE hash = :hash AND (name IS NULL OR :objects = 1) RETURNING name;

-- name: put_blob
INSERT INTO blob_file (hash, size, put_at) VALUES (:hash, :size, :now)
ON CONFLICT (hash) DO UPDATE SET name = NULL, put_at = excluded.put_at;

-- name: name_blob
-- Instead of the one that was lost, if any. No row: another process was faster.
INSERT INTO blob_file (hash, size, put_at, name) VALUES (:hash, :size, :now, :name)
ON CONFLICT (hash) DO UPDATE SET name = excluded.name WHERE blob_file.name = :lost RETURNING hash;

-- name: put_chunk
INSERT INTO blob_chunk (hash, part, content) VALUES (:hash, :part, :content) ON CONFLICT (hash, part) DO NOTHING;

-- name: find_blob
SELECT size, name FROM blob_file WHERE hash = :hash;

-- name: named_blobs
SELECT f.name FROM rows(:blobs, hash text, name text) AS r JOIN blob_file f ON f.hash = r.hash AND f.name = r.name;

-- name: blobs_kept
SELECT f.hash FROM rows(:hashes, hash text) AS r JOIN blob_file f ON f.hash = r.hash;

-- name: blob_chunk
SELECT content FROM blob_chunk WHERE hash = :hash AND part = :part;

-- name: drop_blobs
DELETE FROM blob_file WHERE put_at <= :before AND hash IN (
    SELECT f.hash FROM blob_file f
    WHERE f.put_at <= :before AND NOT EXISTS (SELECT 1 FROM blob b WHERE b.hash = f.hash)
      AND NOT EXISTS (SELECT 1 FROM received x WHERE x.raw = f.hash)
      AND (f.name IS NULL OR :objects = 1)
    LIMIT :limit)
RETURNING hash, name;

-- name: drop_chunks
DELETE FROM blob_chunk WHERE hash IN (SELECT hash FROM rows(:hashes, hash text) AS r);
