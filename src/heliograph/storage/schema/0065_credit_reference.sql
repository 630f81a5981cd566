-- Credit adjustments by platform keys: each reference is booked once; a repeated request returns this row.
CREATE TABLE credit_reference (
    team       BIGINT NOT NULL,
    reference  TEXT NOT NULL,
    amount     BIGINT NOT NULL,
    available  BIGINT NOT NULL,    -- available credit after the booking
    held       BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (team, reference)
)
WITHOUT ROWID  --sqlite
;
