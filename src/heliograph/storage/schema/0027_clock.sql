-- The clock that the processes of an SQLite file share, all on one machine. PostgreSQL has one of its own: empty there.
CREATE TABLE machine_clock (
    one   SMALLINT PRIMARY KEY CHECK (one = 1),
    boot  TEXT NOT NULL,    -- of the machine: its count begins anew with each
    ahead BIGINT NOT NULL,  -- ms from that count to the time of day
    seen  BIGINT NOT NULL   -- when a process last had the same time of day
);
