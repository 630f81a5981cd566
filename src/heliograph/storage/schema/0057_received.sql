-- Inbound emails of teams (contract 17).
CREATE TABLE received (
    id         TEXT PRIMARY KEY,              --sqlite
    id         TEXT COLLATE "C" PRIMARY KEY,  --postgres
    team       BIGINT NOT NULL,
    sender     TEXT NOT NULL,      -- normalised From address; empty if there is none
    digest     TEXT NOT NULL,      -- SHA-256 of the mail, to store a repeated mail once
    raw        TEXT,               -- hash of the file with the mail; NULL: deleted by retention
    size       BIGINT NOT NULL,    -- bytes of the mail
    automatic  SMALLINT NOT NULL,  -- 1: sent automatically, not by a person
    held       SMALLINT NOT NULL,  -- 1: no event was published, because of a possible mail loop
    has_body   SMALLINT NOT NULL,  -- 0: texts were deleted by retention
    created_at BIGINT NOT NULL,
    record     TEXT NOT NULL,      -- as in the event
    body       TEXT                -- complete texts that the event has only in part
);
CREATE INDEX received_by_team ON received (team, id);
CREATE UNIQUE INDEX received_once ON received (team, digest);
CREATE INDEX received_by_raw ON received (raw) WHERE raw IS NOT NULL;
CREATE INDEX received_by_age ON received (team, has_body, created_at);
CREATE INDEX received_automatic ON received (team, sender, created_at) WHERE automatic = 1;
