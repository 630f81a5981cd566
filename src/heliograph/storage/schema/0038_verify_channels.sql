-- Codes over several channels (contract 16): the ones to try, the one used last, and when the next one's turn comes.
-- `phone` holds an email address's normal form too.
ALTER TABLE verification ADD COLUMN given TEXT;                            -- the email address as the caller wrote it
ALTER TABLE verification ADD COLUMN channels TEXT NOT NULL DEFAULT 'sms';  -- in order, with a space between
ALTER TABLE verification ADD COLUMN channel TEXT NOT NULL DEFAULT 'sms';
ALTER TABLE verification ADD COLUMN sent SMALLINT NOT NULL DEFAULT 0;      -- 1 when a carrier took the code, or may have
ALTER TABLE verification ADD COLUMN resent TEXT NOT NULL DEFAULT '';       -- when it was sent again, with a space between
ALTER TABLE verification ADD COLUMN next_at BIGINT;
ALTER TABLE verification ADD COLUMN carrier TEXT;                          -- whose receipt is waited for
ALTER TABLE verification ADD COLUMN carrier_id TEXT;
CREATE INDEX verification_waiting ON verification (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX verification_by_carrier ON verification (carrier, carrier_id) WHERE next_at IS NOT NULL;
