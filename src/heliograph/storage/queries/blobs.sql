-- Attachment files above 256 KB that are stored in the database (PostgreSQL) or in an object store.

-- name: blob_store_owner
-- Return the id of this instance in the object store, which is created once.
INSERT INTO counter (name, next) VALUES ('blobs', :fresh)
ON CONFLICT (name) DO UPDATE SET next = counter.next RETURNING next;

-- name: touch_blob
-- Renew the time of a stored file and return its object name.
-- Skips files in an object store if this process has none configured.
UPDATE blob_file SET put_at = :now WHERE hash = :hash AND (name IS NULL OR :objects = 1) RETURNING name;

-- name: put_blob
-- Insert a file that is stored in the database.
INSERT INTO blob_file (hash, size, put_at) VALUES (:hash, :size, :now)
ON CONFLICT (hash) DO UPDATE SET name = NULL, put_at = excluded.put_at;

-- name: set_blob_name
-- Set the object name of a file; `lost` is the previous, missing object. Returns no row if another process was first.
INSERT INTO blob_file (hash, size, put_at, name) VALUES (:hash, :size, :now, :name)
ON CONFLICT (hash) DO UPDATE SET name = excluded.name WHERE blob_file.name = :lost RETURNING hash;

-- name: put_chunk
-- Insert a chunk of a file.
INSERT INTO blob_chunk (hash, part, content) VALUES (:hash, :part, :content) ON CONFLICT (hash, part) DO NOTHING;

-- name: find_blob
-- Return the size and the object name of a file.
SELECT size, name FROM blob_file WHERE hash = :hash;

-- name: find_blob_names
-- Return the object names among these that a row references.
SELECT f.name FROM rows(:blobs, hash text, name text) AS r JOIN blob_file f ON f.hash = r.hash AND f.name = r.name;

-- name: find_stored_blobs
-- Return the hashes among these that are in the database or object store.
SELECT f.hash FROM rows(:hashes, hash text) AS r JOIN blob_file f ON f.hash = r.hash;

-- name: blob_chunk
-- Return a chunk of a file.
SELECT content FROM blob_chunk WHERE hash = :hash AND part = :part;

-- name: delete_unused_blobs
-- Delete a batch of old files that neither a message nor an inbound email references.
DELETE FROM blob_file WHERE put_at <= :before AND hash IN (
    SELECT f.hash FROM blob_file f
    WHERE f.put_at <= :before AND NOT EXISTS (SELECT 1 FROM blob b WHERE b.hash = f.hash)
      AND NOT EXISTS (SELECT 1 FROM received x WHERE x.raw = f.hash)
      AND (f.name IS NULL OR :objects = 1)
    LIMIT :limit)
RETURNING hash, name;

-- name: delete_chunks
-- Delete the chunks of files.
DELETE FROM blob_chunk WHERE hash IN (SELECT hash FROM rows(:hashes, hash text) AS r);
