-- User-Agent of a request to the API of another service; empty for our own API and for rows older than this column.
ALTER TABLE request_log ADD COLUMN client TEXT NOT NULL DEFAULT '';
