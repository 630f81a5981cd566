-- DMARC and TLS reports that receivers send about sending domains.
CREATE TABLE aggregate_report (
    domain     TEXT NOT NULL,    -- id of the domain
    digest     TEXT NOT NULL,    -- hash of kind, submitter and report id, to count a repeated report once
    team       BIGINT NOT NULL,  -- 0: the platform
    created_at BIGINT NOT NULL,
    PRIMARY KEY (domain, digest)
)
WITHOUT ROWID  --sqlite
;
CREATE INDEX aggregate_report_by_age ON aggregate_report (team, created_at);

CREATE TABLE dmarc_source (
    domain     TEXT NOT NULL,
    day        BIGINT NOT NULL,    -- UTC day (days since 1970)
    address    TEXT NOT NULL,
    report     TEXT NOT NULL,      -- digest of the report
    team       BIGINT NOT NULL,
    known      SMALLINT NOT NULL,  -- 1: SPF passed for our return path
    total      BIGINT NOT NULL,    -- number of mails
    aligned    BIGINT NOT NULL,
    dkim       BIGINT NOT NULL,
    spf        BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (domain, day, address, report)
)
WITHOUT ROWID  --sqlite
;
CREATE INDEX dmarc_source_by_age ON dmarc_source (team, created_at);

CREATE TABLE tls_result (
    domain     TEXT NOT NULL,
    day        BIGINT NOT NULL,
    type       TEXT NOT NULL,    -- successful, failed, or the type of a failure
    report     TEXT NOT NULL,
    team       BIGINT NOT NULL,
    sessions   BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (domain, day, type, report)
)
WITHOUT ROWID  --sqlite
;
CREATE INDEX tls_result_by_age ON tls_result (team, created_at);
