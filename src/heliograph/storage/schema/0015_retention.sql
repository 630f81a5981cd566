-- Retention settable per team, and teams that have erased an address.

-- What is over is looked for team by team: each keeps it as long as it wants.
DROP INDEX message_ended;
DROP INDEX message_ended_with_body;
DROP INDEX verification_by_age;
DROP INDEX event_alone;
DROP INDEX inbox_code_by_age;
CREATE INDEX message_ended ON message (team, ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX message_ended_with_body ON message (team, ended_at) WHERE ended_at IS NOT NULL AND has_body = 1;
CREATE INDEX verification_by_age ON verification (team, created_at);
CREATE INDEX event_alone ON event (team, created_at) WHERE message IS NULL;
CREATE INDEX inbox_code_by_age ON inbox_code (team, created_at);
CREATE INDEX marketing_by_age ON marketing (created_at);

-- 1 when the team has erased an address, so that its suppression list holds hashes: read with the row that every accept
-- locks anyway, so that the others look up no hash.
ALTER TABLE account ADD COLUMN erased SMALLINT NOT NULL DEFAULT 0;
