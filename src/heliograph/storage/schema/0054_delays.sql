-- Deferred emails, for which `email.delayed` is published once.
CREATE TABLE delay (
    message     BIGINT NOT NULL,
    position    SMALLINT NOT NULL,
    since       BIGINT NOT NULL,
    due_at      BIGINT,                        -- when to publish the event; NULL: published, or not to be published
    work        BIGINT,                        -- key of the recipient's outbox row
    relayed     SMALLINT NOT NULL DEFAULT 0,   -- 1: deferred by a provider that had accepted the email
    gives_up_at TEXT,                          -- when the provider stops retrying, in its own format
    told        SMALLINT NOT NULL DEFAULT 0,
    PRIMARY KEY (message, position)
)
WITHOUT ROWID  --sqlite
;
CREATE INDEX delay_due ON delay (due_at) WHERE due_at IS NOT NULL;
