-- What a team was charged by UTC month and by what it sent, and up to which entry of its ledger that is counted.
CREATE TABLE spend (
    team    BIGINT NOT NULL,
    month   TEXT NOT NULL,
    kind    TEXT NOT NULL,      -- email, sms, whatsapp, verification
    amount  BIGINT NOT NULL,
    charges BIGINT NOT NULL,
    PRIMARY KEY (team, month, kind)
)
WITHOUT ROWID  --sqlite
;
CREATE TABLE spend_counted (
    team INTEGER PRIMARY KEY,  --sqlite
    team BIGINT PRIMARY KEY,   --postgres
    key  BIGINT NOT NULL
);
