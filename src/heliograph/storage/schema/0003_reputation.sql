-- How many of a team's emails left, bounced and were complained about, by the hour.

CREATE TABLE reputation (
    team       BIGINT NOT NULL,
    hour       BIGINT NOT NULL,                -- when it began
    sends      BIGINT NOT NULL,
    bounces    BIGINT NOT NULL,
    complaints BIGINT NOT NULL,
    PRIMARY KEY (team, hour)
)
WITHOUT ROWID  --sqlite
;
CREATE INDEX reputation_by_hour ON reputation (hour);
