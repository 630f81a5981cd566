-- What carriers were handed, and dead letters that are charged when they are tried again.

-- Hand-overs by carrier and minute. Each process (seat) has rows of its own: none waits for another's.
CREATE TABLE carrier_use (
    carrier  TEXT NOT NULL,
    minute   BIGINT NOT NULL,                  -- when it began
    seat     TEXT NOT NULL,
    accepted BIGINT NOT NULL,
    refused  BIGINT NOT NULL,                  -- for good
    put_off  BIGINT NOT NULL,                  -- to be tried again, or not reached at all
    took_ms  BIGINT NOT NULL,                  -- of all of them together
    PRIMARY KEY (carrier, minute, seat)
)
WITHOUT ROWID  --sqlite
;
CREATE INDEX carrier_use_by_minute ON carrier_use (minute);

-- A message has one hold, and one capture or one release, for each turn: the first, and one more each time that an
-- operator tries it again after its hold was released.
ALTER TABLE message ADD COLUMN turn BIGINT NOT NULL DEFAULT 0;
ALTER TABLE ledger ADD COLUMN turn BIGINT NOT NULL DEFAULT 0;
DROP INDEX ledger_hold;
DROP INDEX ledger_settled;
CREATE UNIQUE INDEX ledger_hold ON ledger (subject, turn) WHERE kind = 'hold';
CREATE UNIQUE INDEX ledger_settled ON ledger (subject, turn) WHERE kind IN ('capture', 'release');
