-- What each API process has let through since its start, told to the others.
CREATE TABLE spent (
    process  TEXT NOT NULL,
    key      TEXT NOT NULL,      -- of the API; empty: the process itself
    requests BIGINT NOT NULL,
    told_at  BIGINT NOT NULL,
    PRIMARY KEY (process, key)
);
