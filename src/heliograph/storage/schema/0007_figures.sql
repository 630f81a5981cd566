-- What became of each team's messages, counted by channel and hour: what the overview shows.

CREATE TABLE figure (
    team       BIGINT NOT NULL,
    hour       BIGINT NOT NULL,                -- when it began
    channel    TEXT NOT NULL,
    sent       BIGINT NOT NULL,                -- recipients with a first outcome, also a refusal at the door
    delivered  BIGINT NOT NULL,
    bounced    BIGINT NOT NULL,
    complained BIGINT NOT NULL,
    failed     BIGINT NOT NULL,
    read       BIGINT NOT NULL,
    PRIMARY KEY (team, hour, channel)
)
WITHOUT ROWID  --sqlite
;
CREATE INDEX figure_by_hour ON figure (hour);
