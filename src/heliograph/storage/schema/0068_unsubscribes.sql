-- Recipients who unsubscribed from a category of a team's emails.
CREATE TABLE unsubscribe (
    team       BIGINT NOT NULL,
    address    TEXT NOT NULL,    -- normalised, or the keyed hash of an erased one
    category   TEXT NOT NULL,
    reason     TEXT NOT NULL,    -- link, mail, manual
    created_at BIGINT NOT NULL,
    PRIMARY KEY (team, address, category)
)
WITHOUT ROWID  --sqlite
;
CREATE INDEX unsubscribe_by_time ON unsubscribe (team, created_at, address, category);
CREATE INDEX event_resubscribed ON event (team, subject, id) WHERE type = 'recipient.resubscribed';

-- Category of an email; NULL if it has none.
ALTER TABLE message ADD COLUMN category TEXT;
