-- Credit bookings by platform keys: a reference is booked once, and booking it again returns this row.
CREATE TABLE credit_reference (
    team       BIGINT NOT NULL,
    reference  TEXT NOT NULL,
    amount     BIGINT NOT NULL,
    available  BIGINT NOT NULL,    -- of the account after the booking
    held       BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (team, reference)
)
WITHOUT ROWID  --sqlite
;
