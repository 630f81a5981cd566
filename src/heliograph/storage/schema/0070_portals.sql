-- Portals of teams: each is a link until it is opened, then a session.
CREATE TABLE portal (
    id           TEXT PRIMARY KEY,   -- ptl_…
    hash         TEXT NOT NULL,      -- SHA-256 of the link's token; once opened, of the session's cookie
    csrf         TEXT NOT NULL,      -- CSRF token of the session; empty until the link is opened
    platform_key TEXT NOT NULL,      -- public id of the key that created the link
    team         TEXT NOT NULL,
    pages        TEXT NOT NULL,      -- names of the permitted pages, separated by spaces
    return_url   TEXT NOT NULL,      -- empty if there is none
    expires_at   BIGINT NOT NULL
);
CREATE UNIQUE INDEX portal_by_hash ON portal (hash);
CREATE INDEX portal_by_team ON portal (team);
CREATE INDEX portal_by_key ON portal (platform_key);
CREATE INDEX portal_expiry ON portal (expires_at);
