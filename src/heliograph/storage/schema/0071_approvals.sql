-- Messages of restricted keys that a person must release.
CREATE TABLE approval (
    message    BIGINT NOT NULL PRIMARY KEY,
    id         TEXT NOT NULL,              --sqlite
    id         TEXT COLLATE "C" NOT NULL,  --postgres
    team       BIGINT NOT NULL,
    key_id     TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,  -- when the message fails without a decision
    status     TEXT NOT NULL,    -- pending, approved, rejected, expired, canceled
    decided_at BIGINT            -- time of the decision, expiry or cancellation; NULL: pending
)
WITHOUT ROWID  --sqlite
;
CREATE UNIQUE INDEX approval_by_id ON approval (id);
CREATE INDEX approval_by_team ON approval (team, id);
CREATE INDEX approval_pending ON approval (team, expires_at) WHERE decided_at IS NULL;
