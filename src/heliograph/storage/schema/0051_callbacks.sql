-- URL that receives the events of a single message, instead of the team's webhooks. Metadata and tags cannot set it.
CREATE TABLE callback (
    message INTEGER PRIMARY KEY,  --sqlite
    message BIGINT PRIMARY KEY,   --postgres
    url     TEXT NOT NULL
);
