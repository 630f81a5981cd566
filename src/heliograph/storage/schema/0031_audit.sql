-- The audit log from a time on, or up to one.
CREATE INDEX audit_by_time ON audit (at, key);
