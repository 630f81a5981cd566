-- Deferred emails: reported once if they are not delivered some minutes later.
CREATE TABLE delay (
    message     BIGINT NOT NULL,
    position    SMALLINT NOT NULL,
    since       BIGINT NOT NULL,
    due_at      BIGINT,                        -- when to report it; NULL: reported, or not to be reported
    work        BIGINT,                        -- its row in the outbox
    relayed     SMALLINT NOT NULL DEFAULT 0,   -- deferred by a provider that had accepted it
    gives_up_at TEXT,                          -- as the provider says
    told        SMALLINT NOT NULL DEFAULT 0,
    PRIMARY KEY (message, position)
)
WITHOUT ROWID  --sqlite
;
CREATE INDEX delay_due ON delay (due_at) WHERE due_at IS NOT NULL;
