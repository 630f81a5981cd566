-- Where a message's own events are sent, instead of to the team's endpoint. Nothing that a caller may put into a message's
-- metadata or tags leads here.
CREATE TABLE callback (
    message INTEGER PRIMARY KEY,  --sqlite
    message BIGINT PRIMARY KEY,   --postgres
    url     TEXT NOT NULL
);
