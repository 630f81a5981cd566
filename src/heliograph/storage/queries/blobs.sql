-- Attachment files above 256 KB, where the database is their place (PostgreSQL).

-- name: touch_blob
UPDATE blob_file SET put_at = :now WHERE hash = :hash RETURNING hash;

-- name: put_blob
INSERT INTO blob_file (hash, size, put_at) VALUES (:hash, :size, :now) ON CONFLICT (hash) DO NOTHING;

-- name: put_chunk
INSERT INTO blob_chunk (hash, part, content) VALUES (:hash, :part, :content) ON CONFLICT (hash, part) DO NOTHING;

-- name: blob_size
SELECT size FROM blob_file WHERE hash = :hash;

-- name: blob_chunk
SELECT content FROM blob_chunk WHERE hash = :hash AND part = :part;

-- name: drop_blobs
DELETE FROM blob_file WHERE put_at <= :before AND hash IN (
    SELECT f.hash FROM blob_file f
    WHERE f.put_at <= :before AND NOT EXISTS (SELECT 1 FROM blob b WHERE b.hash = f.hash)
    LIMIT :limit)
RETURNING hash;

-- name: drop_chunks
DELETE FROM blob_chunk WHERE hash IN (SELECT hash FROM rows(:hashes, hash text) AS r);
