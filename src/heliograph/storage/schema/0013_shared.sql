-- What every process behind a balancer shows alike: refused requests, imports of suppressions, tries to sign in.

-- Refused requests: every process writes its own about once a second. Ids grow with time.
CREATE TABLE refused_request (
    id      TEXT PRIMARY KEY,              -- req_…  --sqlite
    id      TEXT COLLATE "C" PRIMARY KEY,  --postgres
    team    BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    key     TEXT NOT NULL,                 -- the token's public part
    route   TEXT NOT NULL,
    status  SMALLINT NOT NULL,
    code    TEXT NOT NULL,
    message TEXT NOT NULL,
    more    BIGINT NOT NULL                -- of this team, just before it, that were too many to be kept
);
CREATE INDEX refused_request_by_team ON refused_request (team, id);

-- A file on its way onto a suppression list. Whoever locks the row does the next portion.
CREATE TABLE suppression_import (
    id            TEXT PRIMARY KEY,              -- imp_…  --sqlite
    id            TEXT COLLATE "C" PRIMARY KEY,  --postgres
    team          BIGINT NOT NULL,
    lines         BIGINT NOT NULL,
    left_out      BIGINT NOT NULL,               -- of the lines: those that cannot be taken
    first_left    TEXT NOT NULL,                 -- JSON: the first of them
    portions      BIGINT NOT NULL,
    portions_done BIGINT NOT NULL DEFAULT 0,
    lines_done    BIGINT NOT NULL DEFAULT 0,
    added         BIGINT NOT NULL DEFAULT 0,
    known         BIGINT NOT NULL DEFAULT 0,     -- were on the list already
    created_at    BIGINT NOT NULL,
    ended_at      BIGINT,
    broken        SMALLINT NOT NULL DEFAULT 0    -- 1: it ended before its end
);
CREATE INDEX suppression_import_by_team ON suppression_import (team, id);
CREATE INDEX suppression_import_open ON suppression_import (lines_done, id) WHERE ended_at IS NULL;

-- Written before the import itself, so that an import is always whole.
CREATE TABLE import_portion (
    import_id TEXT NOT NULL,              --sqlite
    import_id TEXT COLLATE "C" NOT NULL,  --postgres
    number    BIGINT NOT NULL,            -- from 0
    added     TEXT,                       -- JSON: numbers of the lines that came onto the list; NULL: not done yet
    lines     TEXT NOT NULL,              -- JSON
    PRIMARY KEY (import_id, number)
);

-- Wrong tries by name: an account or a client's address, hashed.
CREATE TABLE wrong_try (
    name    TEXT PRIMARY KEY,
    times   TEXT NOT NULL,                -- JSON: of each try that counts, oldest first
    ends_at BIGINT NOT NULL               -- when none of them counts any more
);
CREATE INDEX wrong_try_ends ON wrong_try (ends_at);
