-- Parts of recipients, subjects and ids are found among all messages (ADR 0029). A duty fills this after the fact, span
-- by span: a span is 4,096 messages in the order of their keys, of all teams. What is not in it yet is read itself.

CREATE TABLE gram (
    span   BIGINT NOT NULL,            -- key of its messages >> 12
    mark   TEXT NOT NULL,              --sqlite
    mark   TEXT COLLATE "C" NOT NULL,  --postgres
    places BLOB NOT NULL,              --sqlite
    places BYTEA NOT NULL,             --postgres
    PRIMARY KEY (span, mark)
)
WITHOUT ROWID  --sqlite
;

-- The spans that are in it, since when, and how many of their messages are gone since.
CREATE TABLE gram_span (
    span    BIGINT PRIMARY KEY,
    made_at BIGINT NOT NULL,
    gone    BIGINT NOT NULL
);

-- Grows when an address is erased: what was read before is not written after.
INSERT INTO counter (name, next) VALUES ('gram', 0);

-- Messages with a recipient that something went wrong for, whatever became of the others.
CREATE INDEX event_wrong ON event (team, status, subject)
WHERE message IS NOT NULL AND status IN ('bounced', 'complained', 'failed');
