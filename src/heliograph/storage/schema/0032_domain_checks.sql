-- What DNS last said about each sending domain, record by record, and when it is asked again. The service writes it
-- every few seconds after a change, so it is no part of the setup.
CREATE TABLE domain_check (
    domain     TEXT PRIMARY KEY,
    checked_at BIGINT,
    since      BIGINT,                     -- watched since this change; null: not watched
    next_at    BIGINT,                     -- null: with the round of all domains
    zone       TEXT NOT NULL DEFAULT '',   -- that holds the domain, as DNS says; empty: not known
    records    TEXT NOT NULL DEFAULT '[]'
);
CREATE INDEX domain_check_by_time ON domain_check (next_at) WHERE next_at IS NOT NULL;

-- What an operator decided, for the person who asked: shown once, on their next page.
CREATE TABLE decision (
    person TEXT NOT NULL,
    at     BIGINT NOT NULL,
    text   TEXT NOT NULL,
    place  TEXT NOT NULL
);
CREATE INDEX decision_by_person ON decision (person, at);
