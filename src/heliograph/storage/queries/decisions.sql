-- What operators decided, for those who asked.

-- name: insert_decision
INSERT INTO decision (person, at, text, place) VALUES (:person, :at, :text, :place);

-- name: decisions_of
SELECT at, text, place FROM decision WHERE person = :person ORDER BY at LIMIT :most;

-- name: delete_decisions
DELETE FROM decision WHERE person = :person;

-- name: forget_decisions
DELETE FROM decision WHERE person = :person AND at <= :until;
