"""Dashboard accounts: invitations, roles, links, removal, and what people change in their own account.

A role is an invitation until the person accepts it, and a password is verified or not (ADR 0020).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from heliograph.changes.fields import check_fields, is_line
from heliograph.domain.accounts import people as rules
from heliograph.domain.accounts.idp_groups import OPERATOR, READ_ONLY, ROLES
from heliograph.domain.accounts.people import Link, Person, RoleChange, Standing
from heliograph.domain.audit.actor import SERVICE, Actor, AuditEntry
from heliograph.domain.mail.address import parse_address
from heliograph.domain.refusals import InvalidRequest, NotFound
from heliograph.manage.teams import find_team
from heliograph.storage.passkeys import Passkey
from heliograph.storage.people import Identity, Offered, Stranger
from heliograph.storage.store import Store


class NewPerson(msgspec.Struct, frozen=True, kw_only=True):
    email: str
    name: str = ""  # the address if empty


class LinkTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Who creates a link, and how it reaches the person; both decide whether the account counts as verified."""

    by_operator: bool  # created by an operator or the command line
    mailed: bool  # mailed to the address; otherwise shown to the creator

    @property
    def proven(self) -> int:
        return int(self.by_operator or self.mailed)


PRINTED = LinkTerms(by_operator=True, mailed=False)  # links printed by the command line


# -- who may do what --------------------------------------------------------------------------------------------------


async def invite(store: Store, actor: Actor, team: str, wanted: NewPerson, role: str, terms: LinkTerms) -> Offered:
    """Invite a person who is neither a member of the team nor invited."""
    find_team(store.setup.current, team)
    email, name = read_person(wanted, {} if role in ROLES else {"role": "Choose a role."})

    def judge(standing: Standing) -> AuditEntry:
        for state, held in (("here", standing.roles), ("invited", standing.invited)):
            if team in held:
                raise InvalidRequest(f"They are {state} already, as {held[team]}.", param="email")
        return actor.did(store.clock.now(), "member.invite", email, role, team=team)

    return await _offer(store, email, name, {team: role}, _link(actor, "invite", team, terms), judge)


async def add(store: Store, actor: Actor, wanted: NewPerson, instance_role: str, terms: LinkTerms) -> Offered:
    """Add a new person without a team; with an empty role, also without a role in the instance."""
    email, name = read_person(wanted)

    def judge(standing: Standing) -> AuditEntry:
        if standing.person:
            raise InvalidRequest("This person is here already.", param="email")
        return actor.did(store.clock.now(), "person.add", email, instance_role)

    return await _offer(store, email, name, _roles(instance_role), _link(actor, "invite", "", terms), judge)


async def add_or_offer(
    store: Store, actor: Actor, wanted: NewPerson, *, instance_role: str = "", team: str | None = None, role: str = ""
) -> Offered:
    """Add or invite a person; the result has no token if there is nothing to accept.

    One audit entry covers the offer.
    """
    email, name = read_person(wanted)
    if team is not None:
        find_team(store.setup.current, team)
    offered = _roles(instance_role) | ({team: role} if team else {})

    def judge(standing: Standing) -> AuditEntry | None:
        if team and standing.roles.get(team) != role:
            action = "member.role" if team in standing.roles else "member.invite"
            detail = f"{role}, {instance_role}" if instance_role else role
            return actor.did(store.clock.now(), action, email, detail, team=team)
        if instance_role and standing.roles.get("") != instance_role:
            return actor.did(store.clock.now(), "person.operator", email, _told(instance_role))
        if standing.person and standing.person.password and not standing.invited:
            return None
        return actor.did(store.clock.now(), "person.add", email)

    return await _offer(store, email, name, offered, _link(actor, "invite", "", PRINTED), judge)


async def offer_operator(store: Store, actor: Actor, person: Person, role: str, terms: LinkTerms) -> Offered:
    """Offer a role in the instance. Changing an operator to read-only applies at once."""
    entry = actor.did(store.clock.now(), "person.operator", person.email, _told(role))
    return await _offer_known(store, person, "", role, _link(actor, "invite", "", terms), entry)


async def offer_role(store: Store, actor: Actor, person: Person, team: str, role: str, terms: LinkTerms) -> Offered:
    """Invite an existing person to a team, as an operator. The link accepts all invitations of the person."""
    find_team(store.setup.current, team)
    entry = actor.did(store.clock.now(), "member.invite", person.email, role, team=team)
    return await _offer_known(store, person, team, role, _link(actor, "invite", "", terms), entry)


async def _offer_known(store: Store, person: Person, team: str, role: str, link: Link, entry: AuditEntry) -> Offered:
    """Offer a role, unless the person has a role in the team or the same role in the instance."""

    def judge(standing: Standing) -> AuditEntry | None:
        if standing.person is None:
            raise NotFound("There is no such person any more.")
        has_it = team in standing.roles if team else standing.roles.get("") == role
        return None if has_it else entry

    return await _offer(store, person.email, person.name, {team: role}, link, judge)


async def _offer(
    store: Store,
    email: str,
    name: str,
    roles: Mapping[str, str],
    link: Link,
    judge: Callable[[Standing], AuditEntry | None],
) -> Offered:
    """Invite a person, creating the account if new.

    `judge` returns the audit entry, or None if there is nothing to offer.
    """

    def change(standing: Standing) -> RoleChange | None:
        entry = judge(standing)
        return rules.offer(standing, roles, link, entry) if entry else None

    return await store.people.offer(email, name, roles, change)


def _told(role: str) -> str:
    return "yes" if role == OPERATOR else "read-only"


async def end_operator(store: Store, actor: Actor, person: Person) -> None:
    """Remove the person's operator role or the invitation to it."""
    entry = actor.did(store.clock.now(), "person.operator", person.email, "no")
    await assign(store, person.id, "", None, entry)


async def set_role(store: Store, actor: Actor, person: str, email: str, team: str, before: str, role: str) -> None:
    """Set the role of a member or of an invited person."""
    entry = actor.did(store.clock.now(), "member.role", email, f"{before} → {role}", team=team)
    await assign(store, person, team, role, entry)


async def end_role(store: Store, actor: Actor, person: str, email: str, team: str, before: str) -> None:
    """Remove a role or an invitation."""
    await assign(store, person, team, None, actor.did(store.clock.now(), "member.remove", email, before, team=team))


async def assign(
    store: Store, person: str, team: str, role: str | None, entry: AuditEntry, *, asks: bool = True
) -> None:
    """Set a role; None removes the role and its invitation.

    A person without a role in the team is invited, or with `asks=False` receives the role at once.
    """
    await store.people.change(person, [team], lambda one: rules.set_roles(one, {team: role}, entry, asks=asks))


async def remove(store: Store, actor: Actor, person: Person, subject: str = "") -> None:
    """Delete a person. The audit log keeps the id and `subject`, by default the email address."""
    entry = actor.did(store.clock.now(), "person.remove", subject or person.email, person.id)
    await store.people.change(person.id, None, lambda standing: rules.remove(standing, entry))


async def answer(store: Store, actor: Actor, person: str, email: str, team: str, role: str, *, accepts: bool) -> bool:
    """Accept or decline an invitation as the signed-in person; return whether that was possible.

    An empty `team` means the operator role.
    """
    action = f"{'member' if team else 'operator'}.{'accept' if accepts else 'decline'}"
    entry = actor.did(store.clock.now(), action, email, role, team=team or None)
    if not accepts:
        await _decline(store, person, team, entry)
        return True

    def judge(standing: Standing) -> RoleChange | None:
        """Accept if the account is verified; other accounts must use the link of that team."""
        return rules.accept(standing, [team], entry) if standing.person and standing.person.proven else None

    return await store.people.change(person, [], judge)


# -- links ------------------------------------------------------------------------------------------------------------


async def first_link(store: Store) -> str | None:
    """Create a link for the first operator if there are no accounts, else return None.

    Each start creates a new link.
    """
    if await store.people.count():
        return None
    return await store.people.make_link(Link("", "first"), SERVICE.did(store.clock.now(), "link.first", "operator"))


async def demo_link(store: Store, actor: Actor, wanted: NewPerson, teams: Sequence[str]) -> str:
    """Create a link for the demo's operator, who owns the demo's teams without an invitation.

    It opens the first team.
    """
    email, name = read_person(wanted)
    roles = {"": OPERATOR, **dict.fromkeys(teams, "owner")}
    added = actor.did(store.clock.now(), "person.add", email, "demo")
    made = await store.people.offer(email, name, roles, lambda one: rules.set_roles(one, roles, added, asks=False))
    entry = actor.did(store.clock.now(), "person.link", email, "demo")
    return await store.people.make_link(Link(made.person.id, "demo", team=teams[0]), entry)


async def make_link(
    store: Store, actor: Actor, person: Person, purpose: str, terms: LinkTerms, *, without_code: bool = False
) -> str:
    """Create a link to choose a new password or to accept all invitations, as an operator or the command line."""
    detail = f"{purpose}, without the code" if without_code else purpose
    entry = actor.did(store.clock.now(), "person.link", person.email, detail)
    link = msgspec.structs.replace(_link(actor, purpose, "", terms), person=person.id)
    return await store.people.make_link(link, entry, without_code=without_code)


async def make_team_link(store: Store, actor: Actor, person: Person, team: str, purpose: str, terms: LinkTerms) -> str:
    """Create a link for a member of the team, as an owner.

    A new password gives access to the whole account, so an owner can reset only members of no other team who are not
    operators.
    """
    whole = purpose == "reset" and terms.by_operator  # an operator may reset a member of any teams
    if purpose == "reset" and not whole and (person.instance_role or set(await store.people.roles(person.id)) - {team}):
        raise InvalidRequest(f"{person.email} is in other teams too: ask an operator for the link.")
    link = msgspec.structs.replace(_link(actor, purpose, "" if whole else team, terms), person=person.id)
    entry = actor.did(store.clock.now(), f"link.{purpose}", person.email, team=team)
    return await store.people.make_link(link, entry)


async def follow(
    store: Store, actor: Actor, person: Person, token: str, purpose: str, password: str | None, kept_session: str
) -> Person | None:
    """Use a link: set a password (given as hash), accept its invitations, or both.

    Returns None if the link is no longer valid.
    """
    entry = actor.did(store.clock.now(), "account.password", person.email, f"by a link ({purpose})")
    given = {"chooses": password is not None, "signed_in": bool(kept_session)}

    def judge(link: Link, standing: Standing) -> RoleChange | None:
        return rules.follow(link, standing, entry, **given) if link.purpose == purpose else None

    return await store.people.follow(token, judge, password, kept_session)


async def follow_first(store: Store, actor: Actor, wanted: NewPerson, token: str, password: str) -> Person | None:
    """Create the account of the first operator from the setup link; None if the link is invalid."""
    email, name = read_person(wanted)
    entry = actor.did(store.clock.now(), "account.password", email, "by a link (first)")
    change = RoleChange(entries=(entry,), roles={"": OPERATOR})
    return await store.people.add_first(token, email, name, password, change)


async def decline(store: Store, actor: Actor, person: Person, team: str) -> None:
    """Decline an invitation with the link of the team."""
    entry = actor.did(store.clock.now(), "member.decline", person.email, "by a link", team=team)
    await _decline(store, person.id, team, entry)


async def _decline(store: Store, person: str, team: str, entry: AuditEntry) -> None:
    await store.people.change(person, [], lambda standing: rules.decline(standing, team, entry))


def _link(actor: Actor, purpose: str, team: str, terms: LinkTerms) -> Link:
    """Return a link without a person; the caller or the store fills in the person."""
    maker = actor.id if actor.kind == "person" else ""
    return Link("", purpose, team, maker=maker, proven=terms.proven)


def _roles(instance_role: str) -> dict[str, str]:
    return {"": instance_role} if instance_role else {}


def instance_role(operator: bool, read_only: bool) -> str:
    """Return the instance role for the options of a form or command."""
    return READ_ONLY if read_only else OPERATOR if operator else ""


# -- by an identity provider ------------------------------------------------------------------------------------------


async def admit(
    store: Store, address: str, who: Identity, roles: Mapping[str, str | None], provider: str
) -> Person | Stranger:
    """Sign in a person authenticated by an identity provider, with the roles of their groups.

    `roles`: team → role (None to remove); an empty team is the instance. Teams without a mapped group stay unchanged. A
    new person is added only with at least one role.
    """
    wanted = {team: role for team, role in roles.items() if not team or team in store.setup.current.teams}
    entry = Actor(kind="person", address=address).did(store.clock.now(), "", who.email, provider)
    person = await store.people.identify(who, entry, may_add=any(wanted.values()))
    if isinstance(person, str):
        return person
    held = await store.people.roles(person.id) | ({"": person.instance_role} if person.instance_role else {})
    for team, role in wanted.items():
        if role != held.get(team):
            await _follow_group(store, address, person, team, held.get(team), role, provider)
    return person


async def _follow_group(
    store: Store, address: str, person: Person, team: str, before: str | None, role: str | None, provider: str
) -> None:
    action = "person.operator" if not team else "member.role" if role else "member.remove"
    actor = Actor(kind="service", address=address)
    detail = f"{before or 'none'} → {role or 'none'}, by {provider}"
    entry = actor.did(store.clock.now(), action, person.email, detail, team=team or None)
    with suppress(InvalidRequest):  # the last owner or operator keeps the role, because no one else could restore it
        await assign(store, person.id, team, role, entry, asks=False)


async def disconnect(store: Store, actor: Actor, person: Person) -> None:
    entry = actor.did(store.clock.now(), "person.provider", person.email)
    await store.people.forget_identities(person.id, entry)


# -- their own account ------------------------------------------------------------------------------------------------


async def set_name(store: Store, actor: Actor, person: str, email: str, given: str) -> None:
    _, name = read_person(NewPerson(email=email, name=given))
    await store.people.set_name(person, name, actor.did(store.clock.now(), "account.name", email, name))


async def set_password(store: Store, actor: Actor, person: Person, hashed: str, kept_session: str) -> None:
    entry = actor.did(store.clock.now(), "account.password", person.email)
    await store.people.set_password(person.id, hashed, entry, kept_session)


async def start_totp(
    store: Store, actor: Actor, person: str, email: str, sealed: str, codes: list[str], step: int
) -> None:
    """Require a TOTP code at sign-in from now on, with recovery codes.

    `step`: time step of the code that confirmed the setup.
    """
    entry = actor.did(store.clock.now(), "account.totp", email, "on")
    await store.people.set_totp(person, sealed, codes, step, entry)


async def end_totp(store: Store, actor: Actor, person: Person) -> None:
    action = "account.totp" if actor.id == person.id else "person.totp"
    await store.people.end_totp(person.id, actor.did(store.clock.now(), action, person.email, "off"))


async def add_passkey(store: Store, actor: Actor, person: Person, passkey: Passkey) -> bool:
    entry = actor.did(store.clock.now(), "account.passkey", person.email, f"added: {passkey.name}")
    return await store.passkeys.add(passkey, entry)


async def remove_passkey(store: Store, actor: Actor, email: str, passkey: Passkey) -> None:
    entry = actor.did(store.clock.now(), "account.passkey", email, f"removed: {passkey.name}")
    await store.passkeys.remove(passkey.person, passkey.id, entry)


async def end_sessions(store: Store, actor: Actor, person: str, email: str, *, kept: str = "", only: str = "") -> None:
    """End all sessions except `kept`, or only the session `only`."""
    action = "account.sessions" if actor.id == person else "person.sessions"
    entry = actor.did(store.clock.now(), action, email)
    if only:
        await store.sessions.end(person, only, entry)
    else:
        await store.sessions.end_all(person, kept, entry)


def read_person(given: NewPerson, wrong: dict[str, str] | None = None) -> tuple[str, str]:
    """Return the normalised address and name; raise InvalidRequest with all errors, including those in `wrong`."""
    address, name, errors = parse_address(given.email.strip()), given.name.strip(), dict(wrong or {})
    if address is None:
        errors["email"] = "This is not an email address."
    if name and not is_line(name):
        errors["name"] = "A name is one line of at most 200 characters."
    check_fields(errors)
    assert address
    return address.normal, name or address.normal
