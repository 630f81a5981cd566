-- The audit log as a chain: each entry has a place and the hash of what it says and of the one before (ADR 0035).
ALTER TABLE audit ADD COLUMN place BIGINT;   -- NULL: not in the chain yet
ALTER TABLE audit ADD COLUMN salt TEXT;      -- so that nobody guesses by its hash what was erased
ALTER TABLE audit ADD COLUMN link TEXT;      -- SHA-256 of the link before, the place and what it says
ALTER TABLE audit ADD COLUMN original TEXT;  -- hash of what it said before an address was erased in it
CREATE INDEX audit_by_place ON audit (place, key);

-- Its end, and the lock of whoever adds to it.
CREATE TABLE audit_head (
    one    SMALLINT PRIMARY KEY CHECK (one = 1),
    place  BIGINT NOT NULL,
    link   TEXT NOT NULL,
    before BIGINT NOT NULL  -- the newest entry when the chain began: older ones are brought into it
);
INSERT INTO audit_head (one, place, link, before) SELECT 1, 0, '', coalesce(max(key), 0) FROM audit;
