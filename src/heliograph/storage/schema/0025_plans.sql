-- Indexes for what was looked for by reading whole tables.

-- Requests that run now: almost always few, and no finished one pays for it.
CREATE INDEX idempotency_running ON idempotency (owner) WHERE status IS NULL;
CREATE INDEX spent_by_age ON spent (told_at);
CREATE INDEX link_expiry ON link (expires_at);
