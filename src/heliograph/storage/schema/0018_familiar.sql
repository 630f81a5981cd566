-- From where people signed in before: wrong tries of strangers do not keep them out there.

CREATE TABLE familiar (
    person  TEXT NOT NULL,
    mark    TEXT NOT NULL,                     -- SHA-256 of a browser's cookie, or of a network
    seen_at BIGINT NOT NULL,
    PRIMARY KEY (person, mark)
);
CREATE INDEX familiar_seen ON familiar (seen_at);
