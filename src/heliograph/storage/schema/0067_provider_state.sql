-- Rates, tokens and connections per carrier, mailbox provider and source address, shared by all processes.
CREATE TABLE provider_state (
    carrier  TEXT NOT NULL,
    provider TEXT NOT NULL,
    source   TEXT NOT NULL,  -- IP address; empty: the system chooses it
    body     TEXT NOT NULL,
    PRIMARY KEY (carrier, provider, source)
);
