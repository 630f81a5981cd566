-- Users of the dashboard, their sessions, links and credentials.

-- name: count_people
-- Return the number of accounts.
SELECT count(*) FROM person;

-- name: find_person
-- Return an account by id.
SELECT id, email, name, password, totp, operator, proven, observer FROM person WHERE id = :id;

-- name: lock_person
-- Lock and return an account, before any change to it or any step that depends on it.
SELECT id, email, name, password, totp, operator, proven, observer FROM person WHERE id = :id
FOR UPDATE  --postgres
;

-- name: find_person_by_email
-- Return an account by email address.
SELECT id, email, name, password, totp, operator, proven, observer FROM person WHERE email = :email;

-- name: insert_person
-- Insert an account, unless the email address exists.
INSERT INTO person (id, email, name, operator, created_at) VALUES (:id, :email, :name, 0, :now)
ON CONFLICT (email) DO NOTHING;

-- name: list_people
-- Return a page of accounts with teams, last activity and invitation, ordered by email address.
SELECT p.id, p.email, p.name, p.operator, p.password IS NOT NULL, p.totp IS NOT NULL, p.created_at,
    (SELECT count(*) FROM member m WHERE m.person = p.id),
    (SELECT max(s.seen_at) FROM session s WHERE s.person = p.id), p.observer,
    (SELECT min(i.issuer) FROM identity i WHERE i.person = p.id),
    (SELECT o.role FROM invitation o WHERE o.person = p.id AND o.team = '')
FROM person p WHERE p.email > :after AND p.email LIKE :pattern ESCAPE '!' ORDER BY p.email LIMIT :limit;

-- name: set_password
-- Set the password hash of an account.
UPDATE person SET password = :password WHERE id = :id;

-- name: set_proven
-- Set whether an account is verified.
UPDATE person SET proven = :proven WHERE id = :id;

-- name: set_name
-- Change the name of an account; returns no row if unchanged.
UPDATE person SET name = :name WHERE id = :id AND name <> :name RETURNING id;

-- name: set_operator
-- Set the operator and observer roles of an account.
UPDATE person SET operator = :operator, observer = :observer WHERE id = :id;

-- name: lock_operators
-- Lock and return all operators, before one loses the role, because at least one must remain.
SELECT id, email, name, password, totp, operator, proven, observer FROM person WHERE operator = 1
FOR UPDATE  --postgres
;

-- name: delete_person
-- Delete an account.
DELETE FROM person WHERE id = :person;

-- name: delete_memberships
-- Delete all team memberships of a person.
DELETE FROM member WHERE person = :person;

-- name: delete_links
-- Delete all links for a person.
DELETE FROM link WHERE person = :person;

-- name: delete_links_by
-- Delete all links that a person created.
DELETE FROM link WHERE maker = :person;

-- name: delete_links_for
-- Delete earlier links for the same person, team and purpose, which a new link replaces.
DELETE FROM link WHERE person = :person AND team = :team AND purpose = :purpose;

-- name: delete_links_of_teams
-- Delete all links of teams.
DELETE FROM link WHERE team IN (SELECT team FROM rows(:teams, team text) AS r);

-- name: set_totp
-- Set or remove the encrypted TOTP secret of an account.
UPDATE person SET totp = :totp WHERE id = :id;

-- name: use_totp_step
-- Mark a TOTP time step as used; returns no row if this or a later step was already used.
UPDATE person SET totp_step = :step WHERE id = :id AND totp_step < :step RETURNING id;

-- name: insert_recovery
-- Insert hashes of recovery codes.
INSERT INTO recovery (person, hash) SELECT person, hash FROM rows(:codes, person text, hash text) AS r;

-- name: count_recovery
-- Return the number of unused recovery codes of a person.
SELECT count(*) FROM recovery WHERE person = :person;

-- name: use_recovery
-- Delete a recovery code when it is used; returns no row if it is unknown.
DELETE FROM recovery WHERE person = :person AND hash = :hash RETURNING person;

-- name: delete_recovery
-- Delete all recovery codes of a person.
DELETE FROM recovery WHERE person = :person;

-- name: memberships
-- Return the teams and roles of a person.
SELECT team, role FROM member WHERE person = :person;

-- name: members_of
-- Return the members and invited people of a team.
SELECT p.id, p.email, p.name, m.role, p.password IS NOT NULL, p.totp IS NOT NULL, m.invited,
    (SELECT min(i.issuer) FROM identity i WHERE i.person = p.id)
FROM (
    SELECT person, role, 0 AS invited FROM member WHERE team = :team
    UNION ALL SELECT person, role, 1 FROM invitation WHERE team = :team
) m JOIN person p ON p.id = m.person ORDER BY p.email;

-- name: invitations
-- Return the invitations of a person.
SELECT team, role FROM invitation WHERE person = :person ORDER BY team;

-- name: set_invitation
-- Insert an invitation or change its role.
INSERT INTO invitation (person, team, role) VALUES (:person, :team, :role)
ON CONFLICT (person, team) DO UPDATE SET role = excluded.role;

-- name: delete_invitation
-- Delete an invitation and return its role.
DELETE FROM invitation WHERE person = :person AND team = :team RETURNING role;

-- name: delete_invitations
-- Delete all invitations of a person.
DELETE FROM invitation WHERE person = :person;

-- name: lock_members
-- Lock and return the members of a team, before a role changes, because the change may depend on the other roles.
SELECT person, role FROM member WHERE team = :team
FOR UPDATE  --postgres
;

-- name: set_member
-- Insert a member or change the role.
INSERT INTO member (person, team, role) VALUES (:person, :team, :role)
ON CONFLICT (person, team) DO UPDATE SET role = excluded.role;

-- name: delete_member
-- Remove a person from a team.
DELETE FROM member WHERE person = :person AND team = :team;

-- name: insert_session
-- Insert a session.
INSERT INTO session (hash, id, person, csrf, address, agent, created_at, seen_at, expires_at, ends_at)
VALUES (:hash, :id, :person, :csrf, :address, :agent, :now, :now, :expires_at, :ends_at);

-- name: find_session
-- Return an unexpired session with its person.
SELECT s.id, s.csrf, s.seen_at, p.id, p.email, p.name, p.operator, s.ends_at, p.observer
FROM session s JOIN person p ON p.id = s.person
WHERE s.hash = :hash AND s.expires_at > :now;

-- name: touch_session
-- Record the use of a session and extend it.
UPDATE session SET seen_at = :now, expires_at = :expires_at WHERE hash = :hash;

-- name: sessions_of
-- Return the unexpired sessions of a person, most recently used first.
SELECT id, address, agent, created_at, seen_at FROM session WHERE person = :person AND expires_at > :now
ORDER BY seen_at DESC;

-- name: delete_session
-- Delete one session of a person.
DELETE FROM session WHERE person = :person AND id = :id RETURNING id;

-- name: delete_sessions
-- Delete all sessions of a person except one.
DELETE FROM session WHERE person = :person AND id <> :kept RETURNING id;

-- name: purge_sessions
-- Delete expired sessions.
DELETE FROM session WHERE expires_at <= :now;

-- name: purge_links
-- Delete expired links.
DELETE FROM link WHERE expires_at <= :now;

-- name: find_familiar
-- Return the hashes of browsers and networks from which a person has signed in.
SELECT mark FROM familiar WHERE person = :person;

-- name: set_familiar
-- Record browsers and networks from which a person has signed in.
INSERT INTO familiar (person, mark, seen_at) SELECT person, mark, seen_at
FROM rows(:marks, person text, mark text, seen_at bigint) AS r WHERE true
ON CONFLICT (person, mark) DO UPDATE SET seen_at = excluded.seen_at;

-- name: delete_familiar
-- Delete the known browsers and networks of a person.
DELETE FROM familiar WHERE person = :person;

-- name: purge_familiar
-- Delete browsers and networks that were last used before a time.
DELETE FROM familiar WHERE seen_at <= :before;

-- name: insert_link
-- Insert a link.
INSERT INTO link (hash, person, purpose, expires_at, team, maker, proven)
VALUES (:hash, :person, :purpose, :expires_at, :team, :maker, :proven);

-- name: find_link
-- Return an unexpired link.
SELECT person, purpose, team, maker, proven, expires_at FROM link WHERE hash = :hash AND expires_at > :now;

-- name: use_link
-- Delete and return an unexpired link.
DELETE FROM link WHERE hash = :hash AND expires_at > :now
RETURNING person, purpose, team, maker, proven, expires_at;

-- name: use_once
-- Mark a single-use value as used; returns no row if it was already used.
INSERT INTO link (hash, person, purpose, expires_at) VALUES (:hash, '', 'spent', :expires_at)
ON CONFLICT (hash) DO NOTHING RETURNING hash;

-- name: find_identity
-- Return the person with an identity of a sign-in provider.
SELECT person FROM identity WHERE issuer = :issuer AND subject = :subject;

-- name: identities_of
-- Return the provider identities of a person.
SELECT issuer, subject, created_at FROM identity WHERE person = :person ORDER BY issuer, subject;

-- name: insert_identity
-- Link a provider identity to a person.
INSERT INTO identity (issuer, subject, person, created_at) VALUES (:issuer, :subject, :person, :now);

-- name: delete_identities
-- Unlink all provider identities of a person.
DELETE FROM identity WHERE person = :person RETURNING issuer;

-- name: passkeys_of
-- Return the passkeys of a person.
SELECT id, person, name, public_key, sign_count, created_at, used_at FROM passkey
WHERE person = :person ORDER BY created_at, id;

-- name: find_passkey
-- Return a passkey by credential id.
SELECT id, person, name, public_key, sign_count, created_at, used_at FROM passkey WHERE id = :id;

-- name: insert_passkey
-- Insert a passkey; returns no row if the credential id exists.
INSERT INTO passkey (id, person, name, public_key, sign_count, created_at)
VALUES (:id, :person, :name, :public_key, :sign_count, :created_at)
ON CONFLICT (id) DO NOTHING RETURNING id;

-- name: use_passkey
-- Record the use of a passkey; returns no row if its signature counter did not increase.
-- Authenticators without a counter always report 0.
UPDATE passkey SET sign_count = :count, used_at = :now
WHERE id = :id AND (sign_count < :count OR (sign_count = 0 AND :count = 0)) RETURNING id;

-- name: delete_passkey
-- Delete one passkey of a person.
DELETE FROM passkey WHERE person = :person AND id = :id RETURNING id;

-- name: delete_passkeys
-- Delete all passkeys of a person.
DELETE FROM passkey WHERE person = :person;
