-- A role counts once the person, signed in, has accepted it; a link says who made it, and is judged by that.

CREATE TABLE invitation (
    person TEXT NOT NULL,
    team   TEXT NOT NULL,                      -- team_…; empty: to run the instance
    role   TEXT NOT NULL,                      -- owner, developer, viewer; operator
    PRIMARY KEY (person, team)
);
CREATE INDEX invitation_by_team ON invitation (team);

-- Members stay members. Who never chose a password has accepted nothing yet.
INSERT INTO invitation (person, team, role)
SELECT m.person, m.team, m.role FROM member m JOIN person p ON p.id = m.person WHERE p.password IS NULL;
INSERT INTO invitation (person, team, role) SELECT id, '', 'operator' FROM person WHERE operator = 1 AND password IS NULL;
DELETE FROM member WHERE person IN (SELECT id FROM person WHERE password IS NULL);
UPDATE person SET operator = 0 WHERE password IS NULL;

-- 1: the password goes back to a link that an operator made, or that was mailed to the address.
ALTER TABLE person ADD COLUMN proven SMALLINT NOT NULL DEFAULT 0;
UPDATE person SET proven = operator;

ALTER TABLE link ADD COLUMN team TEXT NOT NULL DEFAULT '';       -- whose owner made it; empty: not for one team
ALTER TABLE link ADD COLUMN maker TEXT NOT NULL DEFAULT '';      -- usr_…; empty: the command line, or nobody
ALTER TABLE link ADD COLUMN proven SMALLINT NOT NULL DEFAULT 0;  -- 1: made by an operator, or mailed to the address
CREATE INDEX link_by_maker ON link (maker);
CREATE INDEX link_by_team ON link (team);
DELETE FROM link WHERE purpose IN ('welcome', 'reset');          -- nobody knows who made them
