-- What somebody did with a message in the test inbox. Most messages have no row: nobody has opened them there.
CREATE TABLE inbox_mark (
    message INTEGER PRIMARY KEY,        --sqlite
    message BIGINT PRIMARY KEY,         --postgres
    opened  SMALLINT NOT NULL,          -- 0: marked as unread again
    deleted SMALLINT NOT NULL           -- 1: hidden in the inbox; the message itself stays
);
