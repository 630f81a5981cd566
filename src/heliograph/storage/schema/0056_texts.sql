-- Inbound texts: ids of known texts, the team that last sent to a phone, and automatic replies sent to a phone.
CREATE TABLE received_text (
    carrier    TEXT NOT NULL,
    carrier_id TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (carrier, carrier_id)
)
WITHOUT ROWID  --sqlite
;
CREATE INDEX received_text_by_time ON received_text (created_at);

CREATE TABLE last_writer (
    phone      TEXT NOT NULL,
    channel    TEXT NOT NULL,
    team       BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (phone, channel)
)
WITHOUT ROWID  --sqlite
;
CREATE INDEX last_writer_by_time ON last_writer (created_at);

CREATE TABLE text_answer (
    team       BIGINT NOT NULL,
    phone      TEXT NOT NULL,
    channel    TEXT NOT NULL,
    word       TEXT NOT NULL,    -- stop, start, help
    created_at BIGINT NOT NULL,
    PRIMARY KEY (team, phone, channel, word)
)
WITHOUT ROWID  --sqlite
;
CREATE INDEX text_answer_by_time ON text_answer (created_at);
