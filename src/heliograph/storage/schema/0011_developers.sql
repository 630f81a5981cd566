-- When each API key was last used: remembered by every process, written about once a minute.
CREATE TABLE key_use (
    key     TEXT PRIMARY KEY,  -- the token's public part
    used_at BIGINT NOT NULL
);
