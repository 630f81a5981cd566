-- Reports that a domain does not exist: a second one, at least 15 minutes later, confirms the first.
CREATE TABLE absent_domain (
    team     BIGINT NOT NULL,
    domain   TEXT NOT NULL,
    first_at BIGINT NOT NULL,
    last_at  BIGINT NOT NULL,
    PRIMARY KEY (team, domain)
)
WITHOUT ROWID  --sqlite
;
CREATE INDEX absent_domain_by_age ON absent_domain (last_at);
