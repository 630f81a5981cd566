"""Dashboard accounts: invitations, roles, links, removal, and what people change in their own account.

A role is an invitation until the person accepts it. A password is verified if it was set through a link that an
operator created or that was mailed to the address (ADR 0020).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from heliograph.changes.fields import check_fields, is_single_line
from heliograph.domain.accounts import people as rules
from heliograph.domain.accounts.idp_groups import OPERATOR, READ_ONLY, ROLES
from heliograph.domain.accounts.people import CurrentRoles, Link, Person, RoleChange
from heliograph.domain.audit.actor import SERVICE, Actor, AuditEntry
from heliograph.domain.mail.address import parse_address
from heliograph.domain.refusals import InvalidRequest, NotFound
from heliograph.manage.teams import get_team
from heliograph.storage.passkeys import Passkey
from heliograph.storage.people import Identity, Invitation, SignInRejection
from heliograph.storage.store import Store


class NewPerson(msgspec.Struct, frozen=True, kw_only=True):
    email: str
    name: str = ""  # the address if empty


class LinkTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Who creates a link, and how it reaches the person: both decide whether the link verifies the person's account."""

    by_operator: bool  # created by an operator or the command line
    by_mail: bool  # mailed to the address; otherwise shown to the creator

    @property
    def is_verified(self) -> int:
        return int(self.by_operator or self.by_mail)


# Links printed by the command line or returned by the API
UNMAILED_BY_OPERATOR = LinkTerms(by_operator=True, by_mail=False)


# -- invitations and roles --------------------------------------------------------------------------------------------


async def invite(
    store: Store, actor: Actor, team: str, new_person: NewPerson, role: str, terms: LinkTerms
) -> Invitation:
    """Invite a person who is neither a member of the team nor invited."""
    get_team(store.setup.current, team)
    email, name = read_person(new_person, {} if role in ROLES else {"role": "Choose a role."})

    def make_entry(current: CurrentRoles) -> AuditEntry:
        for state, team_roles in (("here", current.roles), ("invited", current.invited)):
            if team in team_roles:
                raise InvalidRequest(f"They are already {state}, as {team_roles[team]}.", param="email")
        return actor.audit_entry(store.clock.now(), "member.invite", email, role, team=team)

    return await _invite(store, email, name, {team: role}, _draft_link(actor, "invite", team, terms), make_entry)


async def add_person(
    store: Store, actor: Actor, new_person: NewPerson, instance_role: str, terms: LinkTerms
) -> Invitation:
    """Add a new person without a role in a team; with an empty `instance_role`, also without a role in the instance."""
    email, name = read_person(new_person)

    def make_entry(current: CurrentRoles) -> AuditEntry:
        if current.person:
            raise InvalidRequest("This person already exists.", param="email")
        return actor.audit_entry(store.clock.now(), "person.add", email, instance_role)

    return await _invite(
        store, email, name, _instance_roles(instance_role), _draft_link(actor, "invite", "", terms), make_entry
    )


async def add_or_invite(
    store: Store,
    actor: Actor,
    new_person: NewPerson,
    *,
    instance_role: str = "",
    team: str | None = None,
    role: str = "",
) -> Invitation:
    """Add a new person or invite an existing one, with one audit entry for both roles.

    The result has no token if there is nothing to accept.
    """
    email, name = read_person(new_person)
    if team is not None:
        get_team(store.setup.current, team)
    offered_roles = _instance_roles(instance_role) | ({team: role} if team else {})

    def make_entry(current: CurrentRoles) -> AuditEntry | None:
        if team and current.roles.get(team) != role:
            action = "member.role" if team in current.roles else "member.invite"
            detail = f"{role}, {instance_role}" if instance_role else role
            return actor.audit_entry(store.clock.now(), action, email, detail, team=team)
        if instance_role and current.roles.get("") != instance_role:
            return actor.audit_entry(store.clock.now(), "person.operator", email, _operator_detail(instance_role))
        if current.person and current.person.password and not current.invited:
            return None
        return actor.audit_entry(store.clock.now(), "person.add", email)

    return await _invite(
        store, email, name, offered_roles, _draft_link(actor, "invite", "", UNMAILED_BY_OPERATOR), make_entry
    )


async def offer_instance_role(store: Store, actor: Actor, person: Person, role: str, terms: LinkTerms) -> Invitation:
    """Offer a person a role in the instance. Changing an operator's role to read-only applies at once."""
    entry = actor.audit_entry(store.clock.now(), "person.operator", person.email, _operator_detail(role))
    return await _offer_to_existing(store, person, "", role, _draft_link(actor, "invite", "", terms), entry)


async def offer_team_role(
    store: Store, actor: Actor, person: Person, team: str, role: str, terms: LinkTerms
) -> Invitation:
    """Invite an existing person to a team, as an operator. The returned link accepts all pending invitations."""
    get_team(store.setup.current, team)
    entry = actor.audit_entry(store.clock.now(), "member.invite", person.email, role, team=team)
    return await _offer_to_existing(store, person, team, role, _draft_link(actor, "invite", "", terms), entry)


async def _offer_to_existing(
    store: Store, person: Person, team: str, role: str, link: Link, entry: AuditEntry
) -> Invitation:
    """Offer a role, unless the person already has a role in the team or the same role in the instance."""

    def make_entry(current: CurrentRoles) -> AuditEntry | None:
        if current.person is None:
            raise NotFound("This person no longer exists.")
        has_role = team in current.roles if team else current.roles.get("") == role
        return None if has_role else entry

    return await _invite(store, person.email, person.name, {team: role}, link, make_entry)


async def _invite(
    store: Store,
    email: str,
    name: str,
    roles: Mapping[str, str],
    link: Link,
    make_entry: Callable[[CurrentRoles], AuditEntry | None],
) -> Invitation:
    """Invite a person, creating the account if it does not exist.

    `make_entry` returns the audit entry, or None if there is nothing to offer.
    """

    def decide_roles(current: CurrentRoles) -> RoleChange | None:
        entry = make_entry(current)
        return rules.invite(current, roles, link, entry) if entry else None

    return await store.people.change_by_email(email, name, roles, decide_roles)


def _operator_detail(role: str) -> str:
    return "yes" if role == OPERATOR else "read-only"


async def remove_operator_role(store: Store, actor: Actor, person: Person) -> None:
    """Remove the person's operator role, or the pending invitation to it."""
    entry = actor.audit_entry(store.clock.now(), "person.operator", person.email, "no")
    await assign_role(store, person.id, "", None, entry)


async def set_role(store: Store, actor: Actor, person: str, email: str, team: str, before: str, role: str) -> None:
    """Change the role of a team's member, or of a person invited to the team, from `before` to `role`."""
    entry = actor.audit_entry(store.clock.now(), "member.role", email, f"{before} → {role}", team=team)
    await assign_role(store, person, team, role, entry)


async def remove_role(store: Store, actor: Actor, person: str, email: str, team: str, before: str) -> None:
    """Remove a person's role in a team, or the pending invitation to it."""
    await assign_role(
        store, person, team, None, actor.audit_entry(store.clock.now(), "member.remove", email, before, team=team)
    )


async def assign_role(
    store: Store, person: str, team: str, role: str | None, entry: AuditEntry, *, needs_acceptance: bool = True
) -> None:
    """Set a person's role in a team; None removes the role and a pending invitation.

    A person without a role in the team is invited, or with `needs_acceptance=False` receives the role at once.
    """
    await store.people.change_roles(
        person, [team], lambda current: rules.set_roles(current, {team: role}, entry, invites=needs_acceptance)
    )


async def remove(store: Store, actor: Actor, person: Person, subject: str = "") -> None:
    """Delete a person. The audit entry has the person's id, and `subject` or else the email address as its subject."""
    entry = actor.audit_entry(store.clock.now(), "person.remove", subject or person.email, person.id)
    await store.people.change_roles(person.id, None, lambda current: rules.remove_person(current, entry))


async def answer_invitation(
    store: Store, actor: Actor, person: str, email: str, team: str, role: str, *, accepts: bool
) -> bool:
    """Accept or decline an invitation to a team, or to the instance if `team` is empty.

    Returns False if the invitation cannot be accepted.
    """
    action = f"{'member' if team else 'operator'}.{'accept' if accepts else 'decline'}"
    entry = actor.audit_entry(store.clock.now(), action, email, role, team=team or None)
    if not accepts:
        await _decline(store, person, team, entry)
        return True

    def policy(current: CurrentRoles) -> RoleChange | None:
        """Return the change that accepts the invitation; None if the account is not verified.

        The user of an unverified account must open the link of the inviting team.
        """
        return rules.accept_invitations(current, [team], entry) if current.person and current.person.proven else None

    return await store.people.change_roles(person, [], policy)


# -- links ------------------------------------------------------------------------------------------------------------


async def make_first_link(store: Store) -> str | None:
    """Create a new link for the first operator if no account exists, else return None. Called at each start."""
    if await store.people.count():
        return None
    return await store.people.create_link(
        Link("", "first"), SERVICE.audit_entry(store.clock.now(), "link.first", "operator")
    )


async def make_demo_link(store: Store, actor: Actor, new_person: NewPerson, teams: Sequence[str]) -> str:
    """Make a person operator and owner of the demo's teams; return a sign-in link that opens the first team."""
    email, name = read_person(new_person)
    roles = {"": OPERATOR, **dict.fromkeys(teams, "owner")}
    add_entry = actor.audit_entry(store.clock.now(), "person.add", email, "demo")
    invitation = await store.people.change_by_email(
        email, name, roles, lambda current: rules.set_roles(current, roles, add_entry, invites=False)
    )
    entry = actor.audit_entry(store.clock.now(), "person.link", email, "demo")
    return await store.people.create_link(Link(invitation.person.id, "demo", team=teams[0]), entry)


async def make_link(
    store: Store, actor: Actor, person: Person, purpose: str, terms: LinkTerms, *, without_code: bool = False
) -> str:
    """Create a link, as an operator or the command line, to choose a new password or accept all invitations."""
    detail = f"{purpose}, without the code" if without_code else purpose
    entry = actor.audit_entry(store.clock.now(), "person.link", person.email, detail)
    link = msgspec.structs.replace(_draft_link(actor, purpose, "", terms), person=person.id)
    return await store.people.create_link(link, entry, remove_totp=without_code)


async def make_team_link(store: Store, actor: Actor, person: Person, team: str, purpose: str, terms: LinkTerms) -> str:
    """Create a link for a member of the team, as an owner.

    A new password gives access to the whole account. An owner can therefore reset the password only of members who are
    in no other team and are not operators.
    """
    is_for_account = purpose == "reset" and terms.by_operator  # an operator may reset the password of any member
    if (
        purpose == "reset"
        and not is_for_account
        and (person.instance_role or set(await store.people.get_roles(person.id)) - {team})
    ):
        raise InvalidRequest(f"{person.email} is also in other teams. Ask an operator for the link.")
    link = msgspec.structs.replace(_draft_link(actor, purpose, "" if is_for_account else team, terms), person=person.id)
    entry = actor.audit_entry(store.clock.now(), f"link.{purpose}", person.email, team=team)
    return await store.people.create_link(link, entry)


async def follow_link(
    store: Store, actor: Actor, person: Person, token: str, purpose: str, password: str | None, kept_session: str
) -> Person | None:
    """Use a link: set a password (as a hash), accept invitations, or both; return None if the link is invalid."""
    entry = actor.audit_entry(store.clock.now(), "account.password", person.email, f"by a link ({purpose})")
    link_use = {"sets_password": password is not None, "signed_in": bool(kept_session)}

    def policy(link: Link, current: CurrentRoles) -> RoleChange | None:
        return rules.follow_link(link, current, entry, **link_use) if link.purpose == purpose else None

    return await store.people.accept_link(token, policy, password, kept_session)


async def follow_first_link(
    store: Store, actor: Actor, new_person: NewPerson, token: str, password: str
) -> Person | None:
    """Create the account of the first operator from the setup link; None if the link is invalid."""
    email, name = read_person(new_person)
    entry = actor.audit_entry(store.clock.now(), "account.password", email, "by a link (first)")
    change = RoleChange(entries=(entry,), roles={"": OPERATOR})
    return await store.people.create_first_operator(token, email, name, password, change)


async def decline_invitation(store: Store, actor: Actor, person: Person, team: str) -> None:
    """Decline the invitation of `person` to `team`, on the page that the invitation's link opens."""
    entry = actor.audit_entry(store.clock.now(), "member.decline", person.email, "by a link", team=team)
    await _decline(store, person.id, team, entry)


async def _decline(store: Store, person: str, team: str, entry: AuditEntry) -> None:
    await store.people.change_roles(person, [], lambda current: rules.decline_invitation(current, team, entry))


def _draft_link(actor: Actor, purpose: str, team: str, terms: LinkTerms) -> Link:
    """Return a link that has no person yet; the caller or the store adds the person."""
    creator = actor.id if actor.kind == "person" else ""
    return Link("", purpose, team, maker=creator, proven=terms.is_verified)


def _instance_roles(instance_role: str) -> dict[str, str]:
    return {"": instance_role} if instance_role else {}


def choose_instance_role(operator: bool, read_only: bool) -> str:
    """Return the instance role that the options of a form or command select; empty if none."""
    return READ_ONLY if read_only else OPERATOR if operator else ""


# -- sign-in by an identity provider ----------------------------------------------------------------------------------


async def sign_in_by_provider(
    store: Store, address: str, identity: Identity, roles: Mapping[str, str | None], provider: str
) -> Person | SignInRejection:
    """Sign in a person authenticated by an identity provider, with the roles of the person's groups.

    `roles`: team → role (None to remove); an empty team is the instance. Teams without a mapped group stay unchanged. A
    new person is added only with at least one role.
    """
    mapped_roles = {team: role for team, role in roles.items() if not team or team in store.setup.current.teams}
    entry = Actor(kind="person", address=address).audit_entry(store.clock.now(), "", identity.email, provider)
    person = await store.people.sign_in_with_identity(identity, entry, may_create=any(mapped_roles.values()))
    if isinstance(person, str):
        return person
    current_roles = await store.people.get_roles(person.id) | (
        {"": person.instance_role} if person.instance_role else {}
    )
    for team, role in mapped_roles.items():
        if role != current_roles.get(team):
            await _apply_group_role(store, address, person, team, current_roles.get(team), role, provider)
    return person


async def _apply_group_role(
    store: Store, address: str, person: Person, team: str, before: str | None, role: str | None, provider: str
) -> None:
    action = "person.operator" if not team else "member.role" if role else "member.remove"
    actor = Actor(kind="service", address=address)
    detail = f"{before or 'none'} → {role or 'none'}, by {provider}"
    entry = actor.audit_entry(store.clock.now(), action, person.email, detail, team=team or None)
    with suppress(InvalidRequest):  # the last owner or operator keeps the role, because no one else could restore it
        await assign_role(store, person.id, team, role, entry, needs_acceptance=False)


async def disconnect_provider(store: Store, actor: Actor, person: Person) -> None:
    entry = actor.audit_entry(store.clock.now(), "person.provider", person.email)
    await store.people.unlink_identities(person.id, entry)


# -- the signed-in person's account -----------------------------------------------------------------------------------


async def set_name(store: Store, actor: Actor, person: str, email: str, raw_name: str) -> None:
    _, name = read_person(NewPerson(email=email, name=raw_name))
    await store.people.set_name(person, name, actor.audit_entry(store.clock.now(), "account.name", email, name))


async def set_password(store: Store, actor: Actor, person: Person, password_hash: str, kept_session: str) -> None:
    entry = actor.audit_entry(store.clock.now(), "account.password", person.email)
    await store.people.set_password(person.id, password_hash, entry, kept_session)


async def enable_totp(
    store: Store,
    actor: Actor,
    person: str,
    email: str,
    encrypted_secret: str,
    recovery_codes: list[str],
    time_step: int,
) -> None:
    """Require TOTP codes at sign-in from now on. `time_step`: time step of the code that confirmed the setup."""
    entry = actor.audit_entry(store.clock.now(), "account.totp", email, "on")
    await store.people.set_totp(person, encrypted_secret, recovery_codes, time_step, entry)


async def disable_totp(store: Store, actor: Actor, person: Person) -> None:
    action = "account.totp" if actor.id == person.id else "person.totp"
    await store.people.remove_totp(person.id, actor.audit_entry(store.clock.now(), action, person.email, "off"))


async def add_passkey(store: Store, actor: Actor, person: Person, passkey: Passkey) -> bool:
    entry = actor.audit_entry(store.clock.now(), "account.passkey", person.email, f"added: {passkey.name}")
    return await store.passkeys.add(passkey, entry)


async def remove_passkey(store: Store, actor: Actor, email: str, passkey: Passkey) -> None:
    entry = actor.audit_entry(store.clock.now(), "account.passkey", email, f"removed: {passkey.name}")
    await store.passkeys.remove(passkey.person, passkey.id, entry)


async def end_sessions(store: Store, actor: Actor, person: str, email: str, *, kept: str = "", only: str = "") -> None:
    """End all of a person's sessions except `kept`; if `only` is set, end that session alone."""
    action = "account.sessions" if actor.id == person else "person.sessions"
    entry = actor.audit_entry(store.clock.now(), action, email)
    if only:
        await store.sessions.end_session(person, only, entry)
    else:
        await store.sessions.end_other_sessions(person, kept, entry)


def read_person(new_person: NewPerson, other_errors: dict[str, str] | None = None) -> tuple[str, str]:
    """Return the normalised address and name; raise InvalidRequest with all errors, `other_errors` included."""
    address, name, errors = parse_address(new_person.email.strip()), new_person.name.strip(), dict(other_errors or {})
    if address is None:
        errors["email"] = "Enter a valid email address."
    if name and not is_single_line(name):
        errors["name"] = "Enter a name of up to 200 characters."
    check_fields(errors)
    assert address
    return address.normal, name or address.normal
