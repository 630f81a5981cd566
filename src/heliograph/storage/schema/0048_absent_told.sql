-- When reports said that a domain does not exist: it counts once it is said again 15 minutes later.
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
