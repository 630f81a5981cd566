-- User-Agent of a request to the API of another service; empty: a request to our own API, or older than this.
ALTER TABLE request_log ADD COLUMN client TEXT NOT NULL DEFAULT '';
