-- What people are told of by the service itself: by mail, and in a chat.

-- Written in the transaction of what happened, under a name of its own: nothing is told twice.
CREATE TABLE happening (
    name  TEXT PRIMARY KEY,
    at    BIGINT NOT NULL,
    team  TEXT NOT NULL,               -- empty: the instance
    kind  TEXT NOT NULL,
    facts TEXT NOT NULL,               -- JSON
    actor TEXT NOT NULL,               -- who did it knows it already
    told  SMALLINT NOT NULL DEFAULT 0  -- 1: it has its notices
);
CREATE INDEX happening_untold ON happening (at) WHERE told = 0;
CREATE INDEX happening_by_age ON happening (at);

-- One happening for one person, or for one chat.
CREATE TABLE notice (
    happening TEXT NOT NULL,
    place     TEXT NOT NULL,              -- usr_…, or `chat` and the team
    state     TEXT NOT NULL DEFAULT 'waiting',  -- sending, sent, failed, dropped
    due_at    BIGINT NOT NULL,
    tries     SMALLINT NOT NULL DEFAULT 0,
    mail      TEXT NOT NULL DEFAULT '',   -- which it went with: one mail may tell of many
    done_at   BIGINT,
    detail    TEXT NOT NULL DEFAULT '',   -- why it was not sent
    PRIMARY KEY (happening, place)
);
CREATE INDEX notice_due ON notice (due_at) WHERE state = 'waiting';
CREATE INDEX notice_by_place ON notice (place, done_at);

-- What somebody chose; where nothing is chosen, the role decides.
CREATE TABLE notice_choice (
    person TEXT NOT NULL,
    team   TEXT NOT NULL,
    kind   TEXT NOT NULL,
    wanted SMALLINT NOT NULL,
    PRIMARY KEY (person, team, kind)
);

-- The chat that a team's notices, or the instance's, are posted to as well.
CREATE TABLE chat_hook (
    team   TEXT PRIMARY KEY,  -- empty: the instance
    sealed TEXT NOT NULL,     -- its address, which lets anybody post
    host   TEXT NOT NULL,     -- all of it that is shown
    set_at BIGINT NOT NULL
);
