-- Decisions of operators, stored for the requesters.

-- name: insert_decision
-- Insert a decision for a requester.
INSERT INTO decision (person, at, text, place) VALUES (:person, :at, :text, :place);

-- name: decisions_of
-- Return the oldest unseen decisions for a person.
SELECT at, text, place FROM decision WHERE person = :person ORDER BY at LIMIT :most;

-- name: delete_decisions
-- Delete all decisions for a person.
DELETE FROM decision WHERE person = :person;

-- name: delete_decisions_until
-- Delete a person's decisions up to a time.
DELETE FROM decision WHERE person = :person AND at <= :until;
