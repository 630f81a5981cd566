-- Who somebody is for an identity provider that they sign in with.
CREATE TABLE identity (
    issuer     TEXT NOT NULL,
    subject    TEXT NOT NULL,                  -- how the provider names the person, for ever
    person     TEXT NOT NULL,                  -- usr_…
    created_at BIGINT NOT NULL,
    PRIMARY KEY (issuer, subject)
);
CREATE INDEX identity_by_person ON identity (person);

-- When a session ends however much it is used: what a provider said is believed for a while. NULL: it does not.
ALTER TABLE session ADD COLUMN ends_at BIGINT;
