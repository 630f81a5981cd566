-- Lists by state and by template, whatever the number of messages.

-- One index for both: a list by template alone asks for each state, one by state alone for each template that is in it.
CREATE INDEX message_by_state ON message (team, status, coalesce(template_id, ''), id);
CREATE INDEX verification_by_state ON verification (team, status, id);

-- One index for what retention looks for, instead of two: what still has its content, and what no longer has.
CREATE INDEX message_over ON message (team, has_body, ended_at) WHERE ended_at IS NOT NULL;
DROP INDEX message_ended;
DROP INDEX message_ended_with_body;

-- A recipient's row grows when it is handed over. In full pages the small new ones went into the gaps of old pages, one
-- here and one there, and each such page was written to the log whole.
ALTER TABLE recipient SET (fillfactor = 70);  --postgres
