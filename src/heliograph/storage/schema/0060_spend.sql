-- Charges of a team per UTC month and kind of message, and the last ledger entry included in these sums.
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
