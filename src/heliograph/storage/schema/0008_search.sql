-- Who was written to, for the search by recipient: filled when a recipient is first handed over (ADR 0015).
-- Messages come in spans of 4,096 keys, so that new rows always fall into a small, warm part of the table.

CREATE TABLE seen_recipient (
    span    BIGINT NOT NULL,            -- key of the message >> 12
    team    BIGINT NOT NULL,
    address TEXT NOT NULL,              --sqlite
    address TEXT COLLATE "C" NOT NULL,  --postgres
    message BIGINT NOT NULL,
    PRIMARY KEY (span, team, address, message)
)
WITHOUT ROWID  --sqlite
;
INSERT INTO seen_recipient (span, team, address, message)
SELECT DISTINCT m.key >> 12, m.team, r.address, m.key FROM message m JOIN recipient r ON r.message = m.key;
