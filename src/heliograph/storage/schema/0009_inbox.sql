-- What the dashboard's inbox needs beside the messages, and a suppression list that is read newest first.

-- The text of a code that a simulator delivered to a verified number of a sandbox team: sealed, shown in the inbox only.
CREATE TABLE inbox_code (
    team         BIGINT NOT NULL,
    verification TEXT NOT NULL,              --sqlite
    verification TEXT COLLATE "C" NOT NULL,  --postgres
    sealed       TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (team, verification)
)
WITHOUT ROWID  --sqlite
;
CREATE INDEX inbox_code_by_age ON inbox_code (created_at);

-- When a team last cleared its inbox: what is older is hidden there.
CREATE TABLE inbox_cleared (
    team INTEGER PRIMARY KEY,  --sqlite
    team BIGINT PRIMARY KEY,   --postgres
    at   BIGINT NOT NULL
);

CREATE INDEX suppression_by_time ON suppression (team, created_at, address);
