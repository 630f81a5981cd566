-- Mail that came in for teams (contract 17).
CREATE TABLE received (
    id         TEXT PRIMARY KEY,              --sqlite
    id         TEXT COLLATE "C" PRIMARY KEY,  --postgres
    team       BIGINT NOT NULL,
    sender     TEXT NOT NULL,      -- the address in From, in its normal form; empty: none
    digest     TEXT NOT NULL,      -- SHA-256 of the mail: the same one twice is one
    raw        TEXT,               -- the blob that has it; null: retention has taken it
    size       BIGINT NOT NULL,    -- of the mail, in bytes
    automatic  SMALLINT NOT NULL,  -- 1: no person wrote it
    held       SMALLINT NOT NULL,  -- 1: no event was sent, because it comes from a mail loop
    has_body   SMALLINT NOT NULL,  -- 0: retention has taken its texts
    created_at BIGINT NOT NULL,
    record     TEXT NOT NULL,      -- as its event tells it
    body       TEXT                -- what the event has in part only, whole
);
CREATE INDEX received_by_team ON received (team, id);
CREATE UNIQUE INDEX received_once ON received (team, digest);
CREATE INDEX received_by_raw ON received (raw) WHERE raw IS NOT NULL;
CREATE INDEX received_by_age ON received (team, has_body, created_at);
CREATE INDEX received_automatic ON received (team, sender, created_at) WHERE automatic = 1;
