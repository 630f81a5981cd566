-- Attachment files above 256 KB in the database: on PostgreSQL, whose processes need not share a folder (ADR 0034).
CREATE TABLE blob_file (
    hash   TEXT PRIMARY KEY,
    size   BIGINT NOT NULL,
    put_at BIGINT NOT NULL   -- the last time; a message that needs it may still be about to be written
);
CREATE INDEX blob_file_by_age ON blob_file (put_at);
CREATE TABLE blob_chunk (
    hash    TEXT NOT NULL,
    part    INTEGER NOT NULL,
    content BLOB NOT NULL,   --sqlite
    content BYTEA NOT NULL,  --postgres
    PRIMARY KEY (hash, part)
);
