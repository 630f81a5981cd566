-- Which messages and verifications have which tag, in the order of their ids (contract 16).
CREATE TABLE tag (
    team BIGINT NOT NULL,
    tag  BIGINT NOT NULL,            -- hash of its name and value
    id   TEXT NOT NULL,              --sqlite
    id   TEXT COLLATE "C" NOT NULL,  --postgres
    PRIMARY KEY (team, tag, id)
)
WITHOUT ROWID  --sqlite
;
