-- What the database knows about itself. `secret`: a keyed digest by which it knows its master secret again; nothing of the
-- secret can be learnt from it.
CREATE TABLE fact (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
