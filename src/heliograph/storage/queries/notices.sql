-- Notices to people: the events they report (table happening), one row per recipient, and their settings.

-- name: insert_happenings
-- Insert events that people are to be notified of.
INSERT INTO happening (name, at, team, kind, facts, actor)
SELECT name, at, team, kind, facts, actor
FROM rows(:happenings, name text, at bigint, team text, kind text, facts text, actor text) AS r
WHERE true
ON CONFLICT (name) DO NOTHING;

-- name: any_notice_pending
-- Return whether there are unprocessed events, and whether notices are due.
SELECT EXISTS (SELECT 1 FROM happening WHERE told = 0),
       EXISTS (SELECT 1 FROM notice WHERE state = 'waiting' AND due_at <= :now);

-- name: lock_new_happenings
-- Lock and return events for which no notices were created yet.
SELECT name, at, team, kind, facts, actor FROM happening WHERE told = 0 ORDER BY at LIMIT :limit
FOR UPDATE SKIP LOCKED  --postgres
;

-- name: finish_happenings
-- Mark events as processed.
UPDATE happening SET told = 1, team = r.team FROM rows(:happenings, name text, team text) AS r
WHERE happening.name = r.name;

-- name: members_to_notify
-- Return the members of a team who can sign in, with their accepted role and notice setting.
SELECT m.person, m.role, c.wanted FROM member m JOIN person p ON p.id = m.person
LEFT JOIN notice_choice c ON c.person = m.person AND c.team = m.team AND c.kind = :kind
WHERE m.team = :team AND p.password IS NOT NULL;

-- name: operators_to_notify
-- Return the operators who can sign in, with their notice settings.
SELECT p.id, 'operator', c.wanted FROM person p
LEFT JOIN notice_choice c ON c.person = p.id AND c.team = '' AND c.kind = :kind
WHERE p.operator = 1 AND p.password IS NOT NULL;

-- name: insert_notices
-- Insert notices, one per event and recipient.
INSERT INTO notice (happening, place, due_at)
SELECT happening, place, due_at FROM rows(:notices, happening text, place text, due_at bigint) AS r
WHERE true
ON CONFLICT (happening, place) DO NOTHING;

-- name: due_notices
-- Lock and return due notices with the current role and settings of the recipient.
-- Recipients who left the team in the meantime have no role and receive nothing.
SELECT n.happening, n.place, n.tries, h.at, h.team, h.kind, h.facts, p.email,
       CASE WHEN h.team = '' AND p.operator = 1 THEN 'operator' ELSE m.role END, c.wanted
FROM notice n JOIN happening h ON h.name = n.happening
LEFT JOIN person p ON p.id = n.place
LEFT JOIN member m ON m.person = n.place AND m.team = h.team
LEFT JOIN notice_choice c ON c.person = n.place AND c.team = h.team AND c.kind = h.kind
WHERE n.state = 'waiting' AND n.due_at <= :now ORDER BY n.due_at LIMIT :limit
FOR UPDATE OF n SKIP LOCKED  --postgres
;

-- name: recent_mail_counts
-- Return the number of mails sent to each recipient since a time, and the time of the first mail.
SELECT n.place, count(DISTINCT n.mail), min(n.done_at) FROM rows(:places, place text) AS r
JOIN notice n ON n.place = r.place AND n.done_at > :since AND n.mail <> ''
GROUP BY n.place;

-- name: update_notices
-- Update state, due time and result of notices.
UPDATE notice SET state = r.state, due_at = r.due_at, tries = r.tries, mail = r.mail, done_at = r.done_at,
                  detail = r.detail
FROM rows(:notices, happening text, place text, state text, due_at bigint, tries smallint, mail text, done_at bigint,
          detail text) AS r
WHERE notice.happening = r.happening AND notice.place = r.place;

-- name: notices_to
-- Return the newest finished notices of a recipient.
SELECT h.at, h.team, h.kind, h.facts, n.state, n.done_at, n.detail
FROM notice n JOIN happening h ON h.name = n.happening
WHERE n.place = :place AND n.done_at > 0 ORDER BY n.done_at DESC LIMIT :limit;

-- name: notice_choices
-- Return the notice settings of a person.
SELECT team, kind, wanted FROM notice_choice WHERE person = :person;

-- name: set_notice_choices
-- Set notice settings.
INSERT INTO notice_choice (person, team, kind, wanted)
SELECT person, team, kind, wanted FROM rows(:choices, person text, team text, kind text, wanted smallint) AS r
WHERE true
ON CONFLICT (person, team, kind) DO UPDATE SET wanted = excluded.wanted;

-- name: delete_notice_choices
-- Delete the notice settings of a person.
DELETE FROM notice_choice WHERE person = :person;

-- name: find_chat_hook
-- Return the chat webhook of a team.
SELECT team, sealed, host, set_at FROM chat_hook WHERE team = :team;

-- name: set_chat_hook
-- Insert or replace the chat webhook of a team.
INSERT INTO chat_hook (team, sealed, host, set_at) VALUES (:team, :encrypted_url, :host, :set_at)
ON CONFLICT (team) DO UPDATE SET sealed = excluded.sealed, host = excluded.host, set_at = excluded.set_at;

-- name: delete_chat_hook
-- Delete the chat webhook of a team.
DELETE FROM chat_hook WHERE team = :team RETURNING team;

-- name: purge_notices
-- Delete a batch of old notices.
DELETE FROM notice WHERE (happening, place) IN (
    SELECT n.happening, n.place FROM happening h JOIN notice n ON n.happening = h.name
    WHERE h.at <= :before ORDER BY h.at LIMIT :limit) RETURNING happening;

-- name: purge_happenings
-- Delete a batch of old events whose notices were deleted.
DELETE FROM happening WHERE name IN (
    SELECT h.name FROM happening h WHERE h.at <= :before
      AND NOT EXISTS (SELECT 1 FROM notice n WHERE n.happening = h.name)
    ORDER BY h.at LIMIT :limit) RETURNING name;
