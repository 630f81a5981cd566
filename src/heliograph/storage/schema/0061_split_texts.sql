-- Multipart inbound SMS, until all parts have arrived or the wait for them has ended.
CREATE TABLE split_text (
    id          TEXT NOT NULL PRIMARY KEY,  -- digest of carrier, sender, recipient, reference and number of parts
    carrier     TEXT NOT NULL,
    sender      TEXT NOT NULL,
    recipient   TEXT NOT NULL,
    reference   TEXT NOT NULL,
    total       INTEGER NOT NULL,
    parts       TEXT NOT NULL,              -- JSON: part number → data_coding and octets in base64
    started_at  BIGINT NOT NULL,            -- when the first part arrived
    finished_at BIGINT                      -- when the text was reported; detects repeated parts until it is purged
)
WITHOUT ROWID  --sqlite
;
CREATE INDEX split_text_open ON split_text (started_at) WHERE finished_at IS NULL;
CREATE INDEX split_text_finished ON split_text (finished_at) WHERE finished_at IS NOT NULL;
