-- What the service itself finds and changes often was part of the setup: each flip was a new version of it, for every
-- process to load. Bodies are documents as before.

-- The carriers that cannot be reached. The others have no row.
CREATE TABLE circuit (
    carrier TEXT PRIMARY KEY,
    body    TEXT NOT NULL
);
INSERT INTO circuit (carrier, body) SELECT id, body FROM setting WHERE kind = 'circuit' AND body IS NOT NULL;

-- What the reputation guard last decided about each team; versions grow in commit order.
CREATE TABLE judgement (
    team    TEXT PRIMARY KEY,
    version BIGINT NOT NULL,
    body    TEXT NOT NULL
);
CREATE INDEX judgement_by_version ON judgement (version);
INSERT INTO judgement (team, version, body)
SELECT id, 1, body FROM setting WHERE kind = 'reputation' AND body IS NOT NULL;
INSERT INTO counter (name, next) VALUES ('judgement', 1);

DELETE FROM setting WHERE kind IN ('circuit', 'reputation');
