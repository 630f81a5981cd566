-- Phones that opted out of a team's messages, by channel. The index on events finds the list position of a deleted
-- opt-out.
CREATE TABLE opt_out (
    team       BIGINT NOT NULL,
    phone      TEXT NOT NULL,    -- E.164, or the keyed hash of an erased one
    channel    TEXT NOT NULL,
    reason     TEXT NOT NULL,    -- text, carrier, manual
    created_at BIGINT NOT NULL,
    PRIMARY KEY (team, phone, channel)
)
WITHOUT ROWID  --sqlite
;
CREATE INDEX opt_out_by_time ON opt_out (team, created_at, phone, channel);
CREATE INDEX event_opted_in ON event (team, subject, id) WHERE type = 'opt_out.deleted';

-- 1 if the team has ever had an opt-out: accept transactions of other teams look up none.
ALTER TABLE account ADD COLUMN opted_out SMALLINT NOT NULL DEFAULT 0;
