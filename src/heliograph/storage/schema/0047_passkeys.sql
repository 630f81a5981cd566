-- Public keys whose owners sign in by them, verified by their device.
CREATE TABLE passkey (
    id         TEXT PRIMARY KEY,               -- of the credential, base64url
    person     TEXT NOT NULL,                  -- usr_…
    name       TEXT NOT NULL,
    public_key TEXT NOT NULL,                  -- COSE, base64url
    sign_count BIGINT NOT NULL,                -- of the last use; 0: it does not count
    created_at BIGINT NOT NULL,
    used_at    BIGINT
);
CREATE INDEX passkey_by_person ON passkey (person);
