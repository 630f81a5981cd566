-- Emails that were put off: told once, when they are not delivered some minutes later.
CREATE TABLE delay (
    message     BIGINT NOT NULL,
    position    SMALLINT NOT NULL,
    since       BIGINT NOT NULL,
    due_at      BIGINT,                        -- when to tell it; NULL: told, or not to be told
    work        BIGINT,                        -- its row in the outbox
    relayed     SMALLINT NOT NULL DEFAULT 0,   -- put off by a provider that had taken it
    gives_up_at TEXT,                          -- as the provider says
    told        SMALLINT NOT NULL DEFAULT 0,
    PRIMARY KEY (message, position)
)
WITHOUT ROWID  --sqlite
;
CREATE INDEX delay_due ON delay (due_at) WHERE due_at IS NOT NULL;
