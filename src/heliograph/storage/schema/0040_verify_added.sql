-- What a caller added to a verification: tags and metadata, as JSON (contract 16).
ALTER TABLE verification ADD COLUMN added TEXT NOT NULL DEFAULT '{}';
