-- People of the dashboard, their sessions and links.

-- name: count_people
SELECT count(*) FROM person;

-- name: find_person
SELECT id, email, name, password, totp, operator, proven, observer FROM person WHERE id = :id;

-- name: lock_person
-- Before anything that depends on, or changes, what this person is.
SELECT id, email, name, password, totp, operator, proven, observer FROM person WHERE id = :id
FOR UPDATE  --postgres
;

-- name: find_person_by_email
SELECT id, email, name, password, totp, operator, proven, observer FROM person WHERE email = :email;

-- name: insert_person
INSERT INTO person (id, email, name, operator, created_at) VALUES (:id, :email, :name, 0, :now)
ON CONFLICT (email) DO NOTHING;

-- name: list_people
-- By address, after the last one seen.
SELECT p.id, p.email, p.name, p.operator, p.password IS NOT NULL, p.totp IS NOT NULL, p.created_at,
    (SELECT count(*) FROM member m WHERE m.person = p.id),
    (SELECT max(s.seen_at) FROM session s WHERE s.person = p.id), p.observer,
    (SELECT min(i.issuer) FROM identity i WHERE i.person = p.id),
    (SELECT o.role FROM invitation o WHERE o.person = p.id AND o.team = '')
FROM person p WHERE p.email > :after AND p.email LIKE :pattern ESCAPE '!' ORDER BY p.email LIMIT :limit;

-- name: set_password
UPDATE person SET password = :password WHERE id = :id;

-- name: set_proven
UPDATE person SET proven = :proven WHERE id = :id;

-- name: set_name
UPDATE person SET name = :name WHERE id = :id AND name <> :name RETURNING id;

-- name: set_operator
UPDATE person SET operator = :operator, observer = :observer WHERE id = :id;

-- name: lock_operators
-- Before one of them stops being one: others must be left.
SELECT id, email, name, password, totp, operator, proven, observer FROM person WHERE operator = 1
FOR UPDATE  --postgres
;

-- name: delete_person
DELETE FROM person WHERE id = :person;

-- name: delete_memberships
DELETE FROM member WHERE person = :person;

-- name: delete_links
DELETE FROM link WHERE person = :person;

-- name: delete_links_by
DELETE FROM link WHERE maker = :person;

-- name: delete_links_for
-- What an earlier one for the same end could do, the next one does.
DELETE FROM link WHERE person = :person AND team = :team AND purpose = :purpose;

-- name: delete_links_of_teams
DELETE FROM link WHERE team IN (SELECT team FROM rows(:teams, team text) AS r);

-- name: set_totp
UPDATE person SET totp = :totp WHERE id = :id;

-- name: use_totp_step
UPDATE person SET totp_step = :step WHERE id = :id AND totp_step < :step RETURNING id;

-- name: insert_recovery
INSERT INTO recovery (person, hash) SELECT person, hash FROM rows(:codes, person text, hash text) AS r;

-- name: count_recovery
SELECT count(*) FROM recovery WHERE person = :person;

-- name: use_recovery
DELETE FROM recovery WHERE person = :person AND hash = :hash RETURNING person;

-- name: delete_recovery
DELETE FROM recovery WHERE person = :person;

-- name: memberships
SELECT team, role FROM member WHERE person = :person;

-- name: members_of
-- Those who are, and those who are invited to be.
SELECT p.id, p.email, p.name, m.role, p.password IS NOT NULL, p.totp IS NOT NULL, m.invited,
    (SELECT min(i.issuer) FROM identity i WHERE i.person = p.id)
FROM (
    SELECT person, role, 0 AS invited FROM member WHERE team = :team
    UNION ALL SELECT person, role, 1 FROM invitation WHERE team = :team
) m JOIN person p ON p.id = m.person ORDER BY p.email;

-- name: invitations
SELECT team, role FROM invitation WHERE person = :person ORDER BY team;

-- name: set_invitation
INSERT INTO invitation (person, team, role) VALUES (:person, :team, :role)
ON CONFLICT (person, team) DO UPDATE SET role = excluded.role;

-- name: delete_invitation
DELETE FROM invitation WHERE person = :person AND team = :team RETURNING role;

-- name: delete_invitations
DELETE FROM invitation WHERE person = :person;

-- name: lock_members
-- Before the role of one of them changes: what the others have is what it may depend on.
SELECT person, role FROM member WHERE team = :team
FOR UPDATE  --postgres
;

-- name: set_member
INSERT INTO member (person, team, role) VALUES (:person, :team, :role)
ON CONFLICT (person, team) DO UPDATE SET role = excluded.role;

-- name: delete_member
DELETE FROM member WHERE person = :person AND team = :team;

-- name: insert_session
INSERT INTO session (hash, id, person, csrf, address, agent, created_at, seen_at, expires_at, ends_at)
VALUES (:hash, :id, :person, :csrf, :address, :agent, :now, :now, :expires_at, :ends_at);

-- name: find_session
SELECT s.id, s.csrf, s.seen_at, p.id, p.email, p.name, p.operator, s.ends_at, p.observer
FROM session s JOIN person p ON p.id = s.person
WHERE s.hash = :hash AND s.expires_at > :now;

-- name: touch_session
UPDATE session SET seen_at = :now, expires_at = :expires_at WHERE hash = :hash;

-- name: sessions_of
SELECT id, address, agent, created_at, seen_at FROM session WHERE person = :person AND expires_at > :now
ORDER BY seen_at DESC;

-- name: delete_session
DELETE FROM session WHERE person = :person AND id = :id RETURNING id;

-- name: delete_sessions
DELETE FROM session WHERE person = :person AND id <> :kept RETURNING id;

-- name: purge_sessions
DELETE FROM session WHERE expires_at <= :now;

-- name: purge_links
DELETE FROM link WHERE expires_at <= :now;

-- name: find_familiar
SELECT mark FROM familiar WHERE person = :person;

-- name: set_familiar
INSERT INTO familiar (person, mark, seen_at) SELECT person, mark, seen_at
FROM rows(:marks, person text, mark text, seen_at bigint) AS r WHERE true
ON CONFLICT (person, mark) DO UPDATE SET seen_at = excluded.seen_at;

-- name: delete_familiar
DELETE FROM familiar WHERE person = :person;

-- name: purge_familiar
DELETE FROM familiar WHERE seen_at <= :before;

-- name: insert_link
INSERT INTO link (hash, person, purpose, expires_at, team, maker, proven)
VALUES (:hash, :person, :purpose, :expires_at, :team, :maker, :proven);

-- name: find_link
SELECT person, purpose, team, maker, proven, expires_at FROM link WHERE hash = :hash AND expires_at > :now;

-- name: use_link
DELETE FROM link WHERE hash = :hash AND expires_at > :now
RETURNING person, purpose, team, maker, proven, expires_at;

-- name: spend
-- What is good once, and is found used the second time.
INSERT INTO link (hash, person, purpose, expires_at) VALUES (:hash, '', 'spent', :expires_at)
ON CONFLICT (hash) DO NOTHING RETURNING hash;

-- name: find_identity
SELECT person FROM identity WHERE issuer = :issuer AND subject = :subject;

-- name: identities_of
SELECT issuer, subject, created_at FROM identity WHERE person = :person ORDER BY issuer, subject;

-- name: insert_identity
INSERT INTO identity (issuer, subject, person, created_at) VALUES (:issuer, :subject, :person, :now);

-- name: delete_identities
DELETE FROM identity WHERE person = :person RETURNING issuer;

-- name: passkeys_of
SELECT id, person, name, public_key, sign_count, created_at, used_at FROM passkey
WHERE person = :person ORDER BY created_at, id;

-- name: find_passkey
SELECT id, person, name, public_key, sign_count, created_at, used_at FROM passkey WHERE id = :id;

-- name: insert_passkey
INSERT INTO passkey (id, person, name, public_key, sign_count, created_at)
VALUES (:id, :person, :name, :public_key, :sign_count, :created_at)
ON CONFLICT (id) DO NOTHING RETURNING id;

-- name: use_passkey
-- A counter only grows, where there is one.
UPDATE passkey SET sign_count = :count, used_at = :now
WHERE id = :id AND (sign_count < :count OR (sign_count = 0 AND :count = 0)) RETURNING id;

-- name: delete_passkey
DELETE FROM passkey WHERE person = :person AND id = :id RETURNING id;

-- name: delete_passkeys
DELETE FROM passkey WHERE person = :person;
