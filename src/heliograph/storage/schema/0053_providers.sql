-- Ids of mail providers' callbacks, to detect repeated ones, and the time of each carrier's last callback.
CREATE TABLE callback_seen (
    carrier    TEXT NOT NULL,
    id         TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (carrier, id)
)
WITHOUT ROWID  --sqlite
;
CREATE INDEX callback_seen_by_age ON callback_seen (created_at);

CREATE TABLE carrier_callback (
    carrier TEXT NOT NULL PRIMARY KEY,
    last_at BIGINT NOT NULL
)
WITHOUT ROWID  --sqlite
;
