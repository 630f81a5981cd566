-- Sends that were accepted together (contract 16).
CREATE TABLE batch (
    id      TEXT PRIMARY KEY,              --sqlite
    id      TEXT COLLATE "C" PRIMARY KEY,  --postgres
    team    BIGINT NOT NULL,
    total   BIGINT NOT NULL,  -- messages that were accepted
    done_at BIGINT            -- when the last of them was finished
)
WITHOUT ROWID  --sqlite
;
CREATE INDEX batch_over ON batch (team, done_at) WHERE done_at IS NOT NULL;

ALTER TABLE message ADD COLUMN batch TEXT;
-- With the end: whether any of them is unfinished is the first entry of its batch.
CREATE INDEX message_by_batch ON message (batch, ended_at) WHERE batch IS NOT NULL;
