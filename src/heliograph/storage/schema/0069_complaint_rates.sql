-- Emails sent and complaints by day, team, source and mailbox provider.
CREATE TABLE complaint_rate (
    team       BIGINT NOT NULL,
    day        BIGINT NOT NULL,   -- start of the UTC day, in ms
    source     TEXT NOT NULL,     -- category, template id, or direct
    provider   TEXT NOT NULL,
    sends      BIGINT NOT NULL,
    complaints BIGINT NOT NULL,
    PRIMARY KEY (team, day, source, provider)
)
WITHOUT ROWID  --sqlite
;
CREATE INDEX complaint_rate_by_day ON complaint_rate (day);
