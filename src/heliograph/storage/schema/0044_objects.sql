-- Attachment files in an S3-compatible store (ADR 0036): its name there; NULL: the file is in blob_chunk.
ALTER TABLE blob_file ADD COLUMN name TEXT;
