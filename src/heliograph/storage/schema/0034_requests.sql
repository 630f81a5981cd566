-- The request log: all calls of a team's keys, and no longer those alone that were refused.
ALTER TABLE refused_request RENAME TO request_log;
ALTER INDEX refused_request_pkey RENAME TO request_log_pkey;  --postgres
ALTER TABLE request_log ADD COLUMN took_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE request_log ADD COLUMN replayed SMALLINT NOT NULL DEFAULT 0;  -- the first answer to its Idempotency-Key
ALTER TABLE request_log ADD COLUMN subject TEXT NOT NULL DEFAULT '';      -- the id of what it made or asked for
ALTER TABLE request_log ADD COLUMN refused SMALLINT NOT NULL DEFAULT 1;   -- each kind is kept up to a number of its own

DROP INDEX refused_request_by_team;
CREATE INDEX request_log_by_team ON request_log (team, refused, id);
