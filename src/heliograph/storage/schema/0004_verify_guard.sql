-- How many verifications were started and verified in a place (a team's whole world, a country, a range of numbers), by
-- the hour: what the conversion guard decides by, so that no start has to look through a day's verifications.

CREATE TABLE conversion (
    team     BIGINT NOT NULL,
    place    TEXT NOT NULL,                    -- *, GB, +447400
    hour     BIGINT NOT NULL,                  -- when it began
    starts   BIGINT NOT NULL,
    verified BIGINT NOT NULL,
    PRIMARY KEY (team, place, hour)
)
WITHOUT ROWID  --sqlite
;
CREATE INDEX conversion_by_hour ON conversion (hour);
