"""The people of the dashboard: accounts, roles and links.

What changes something takes its audit entry along and writes both in one transaction.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from heliograph.rules.audit import AuditEntry
from heliograph.rules.groups import OPERATOR, READ_ONLY
from heliograph.rules.limits import DAY_MS, HOUR_MS, MINUTE_MS
from heliograph.rules.refusals import InvalidRequest
from heliograph.runtime.clock import Clock
from heliograph.storage import audit
from heliograph.storage.engine.database import Database, Tx

# What links are for; `ticket` is held between the password and the code.
LINK_MS = {
    "first": 7 * DAY_MS,
    "invite": 7 * DAY_MS,
    "reset": HOUR_MS,
    "demo": DAY_MS,
    "ticket": 10 * MINUTE_MS,
}
LAST_OWNER = "A team keeps an owner. Make somebody else one first."
LAST_OPERATOR = "The instance keeps an operator. Make somebody else one first."


class Person(msgspec.Struct, frozen=True):
    id: str
    email: str
    name: str
    password: str | None
    totp: str | None  # sealed
    operator: int
    proven: int  # the password goes back to a link that an operator made, or that was mailed to the address
    observer: int  # a read-only operator

    @property
    def instance_role(self) -> str:
        """Return the role in the instance; empty when there is none."""
        return OPERATOR if self.operator else READ_ONLY if self.observer else ""


class PersonLine(msgspec.Struct, frozen=True):
    id: str
    email: str
    name: str
    operator: int
    has_password: int
    has_totp: int
    created_at: int
    teams: int
    seen_at: int | None
    observer: int


class Member(msgspec.Struct, frozen=True):
    id: str
    email: str
    name: str
    role: str
    has_password: int
    has_totp: int
    invited: int  # and has not accepted yet: the role counts for nothing


class Link(msgspec.Struct, frozen=True):
    person: str  # empty: the first operator, who has no account yet
    purpose: str
    team: str = ""  # whose owner made it, and whose invitation it accepts; empty: an operator made it, for all of them
    maker: str = ""  # empty: the command line
    proven: int = 0  # made by an operator, or mailed to the address
    expires_at: int = 0  # 0: as long as the purpose has

    def only_accepts(self, person: Person) -> bool:
        """Tell whether they are invited and have a way in already: they sign in to accept.

        Who came by an identity provider has no password, and a link that proves nothing chooses none for them.
        """
        has_way_in = person.password is not None or (person.proven and not self.proven)
        return self.purpose == "invite" and bool(has_way_in)


class Standing(msgspec.Struct, frozen=True):
    """What somebody is before a change."""

    person: Person | None  # None: no account yet
    roles: dict[str, str]  # team → role
    invited: dict[str, str]


# Why somebody whom a provider let in is nobody here: the address is not verified, it is nobody's and gets no role, or
# its account is another one's at that provider.
Stranger = Literal["unverified", "unknown", "taken"]
Judge = Callable[[Standing], AuditEntry | None]  # the entry of a change; None: there is nothing to change


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody whom an identity provider let in."""

    issuer: str
    subject: str  # how the provider names the person, for ever
    email: str  # in normal form, and verified by the provider; empty: it is not
    name: str


class IdentityLine(msgspec.Struct, frozen=True):
    issuer: str
    subject: str
    created_at: int


class Offered(msgspec.Struct, frozen=True):
    person: Person
    token: str  # of the link to accept by; empty: there is nothing to accept


class People:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    # -- accounts -------------------------------------------------------------------------------------------

    async def count(self) -> int:
        ((count,),) = await self._database.read(lambda tx: tx.run("count_people"))
        return int(count)

    async def find(self, email: str) -> Person | None:
        rows = await self._database.read(lambda tx: tx.run("find_person_by_email", email=email))
        return Person(*rows[0]) if rows else None

    async def get(self, id_: str) -> Person | None:
        rows = await self._database.read(lambda tx: tx.run("find_person", id=id_))
        return Person(*rows[0]) if rows else None

    async def lines(self, search: str = "", after: str = "", limit: int = 50) -> list[PersonLine]:
        """List people by address, and one more than the limit when there are more."""
        wild = "".join(f"!{c}" if c in "!%_" else c for c in search.lower())
        rows = await self._database.read(
            lambda tx: tx.run("list_people", pattern=f"%{wild}%", after=after, limit=limit + 1)
        )
        return [PersonLine(*row) for row in rows]

    async def offer(self, email: str, name: str, roles: Mapping[str, str], link: Link, judge: Judge) -> Offered:
        """Invite the person with this address, made when new: team → role; an empty team: the instance. Who has a role
        in the team has the new one at once, and so has an operator who is to read only. The link is to accept by.
        """

        async def story(tx: Tx) -> Offered:
            before = await tx.run("find_person_by_email", email=email)
            person = await self._add(tx, email, name)
            await lock_person(tx, person.id)
            held = dict(await tx.run("memberships", person=person.id))
            invited = dict(await tx.run("invitations", person=person.id))
            entry = judge(Standing(person if before else None, held, invited))
            if entry is None:
                return Offered(person, "")
            for team, role in roles.items():
                if team:
                    await _set_role(tx, person.id, team, role)
                elif person.operator and role == READ_ONLY:
                    await _keep_operator(tx, person.id)
                    await _give(tx, person.id, "", role)
                    await _end_links(tx, person.id)
                elif person.instance_role not in (role, OPERATOR):
                    await tx.run("set_invitation", person=person.id, team="", role=role)
            await audit.write(tx, entry)
            if person.password and not await tx.run("invitations", person=person.id):
                return Offered(person, "")
            return Offered(person, await self._insert_link(tx, msgspec.structs.replace(link, person=person.id)))

        return await self._database.write(story)

    async def settle(self, email: str, name: str, roles: Mapping[str, str], entry: AuditEntry) -> Person:
        """Make a person who has these roles without being asked: of the demo, whose link is printed for who runs it."""

        async def story(tx: Tx) -> Person:
            person = await self._add(tx, email, name)
            held = dict(await tx.run("memberships", person=person.id)) | {"": person.instance_role}
            for team, role in roles.items() - held.items():
                await _give(tx, person.id, team, role)
            await audit.write(tx, entry if roles.items() - held.items() else None)
            return person

        return await self._database.write(story)

    async def _add(self, tx: Tx, email: str, name: str) -> Person:
        await tx.run("insert_person", id=self._clock.new_id("usr_"), email=email, name=name, now=self._clock.now())
        (row,) = await tx.run("find_person_by_email", email=email)
        return Person(*row)

    async def add_first(self, token: str, email: str, name: str, password: str, entry: AuditEntry) -> Person | None:
        """Follow the first operator's link; None when it is no longer valid, or somebody was first."""
        now = self._clock.now()

        async def story(tx: Tx) -> Person | None:
            used = await tx.run("use_link", hash=hashed(token), now=now)
            ((count,),) = await tx.run("count_people")
            if not used or used[0][1] != "first" or count:
                return None
            await tx.run("delete_links", person="")
            person = await self._add(tx, email, name)
            await _give(tx, person.id, "", OPERATOR)
            await tx.run("set_proven", id=person.id, proven=1)
            await _set_password(tx, person.id, password)
            await audit.write(tx, msgspec.structs.replace(entry, actor=person.id))
            return await lock_person(tx, person.id)

        return await self._database.write(story)

    async def set_password(self, id_: str, hashed: str, entry: AuditEntry, kept_session: str = "") -> None:
        """Set the password; earlier sessions and links become invalid."""

        async def story(tx: Tx) -> None:
            await lock_person(tx, id_)
            await _set_password(tx, id_, hashed, kept_session)
            await audit.write(tx, entry)

        await self._database.write(story)

    async def set_name(self, id_: str, name: str, entry: AuditEntry) -> None:
        async def story(tx: Tx) -> None:
            if await tx.run("set_name", id=id_, name=name):
                await audit.write(tx, entry)

        await self._database.write(story)

    async def end_operator(self, id_: str, entry: AuditEntry) -> None:
        """End the role: they no longer run the instance, nor are invited to."""

        async def story(tx: Tx) -> None:
            await _keep_operator(tx, id_)
            person = await lock_person(tx, id_)
            if not await tx.run("delete_invitation", person=id_, team="") and not (person and person.instance_role):
                return
            await tx.run("set_operator", id=id_, operator=0, observer=0)
            await _end_links(tx, id_)
            await audit.write(tx, entry)

        await self._database.write(story)

    async def remove(self, id_: str, entry: AuditEntry) -> None:
        """Forget a person; the audit log keeps the id."""

        async def story(tx: Tx) -> None:
            await _keep_operator(tx, id_)
            await tx.run("delete_sessions", person=id_, kept="")
            await _end_links(tx, id_)
            await tx.run("delete_memberships", person=id_)
            for query in (
                "delete_invitations",
                "delete_recovery",
                "delete_identities",
                "delete_passkeys",
                "delete_familiar",
                "delete_notice_choices",
                "delete_decisions",
                "delete_person",
            ):
                await tx.run(query, person=id_)
            await audit.write(tx, entry)

        await self._database.write(story)

    # -- an identity provider -------------------------------------------------------------------------------

    async def identify(self, who: Identity, entry: AuditEntry, *, may_add: bool) -> Person | Stranger:
        """Find who it is whom a provider let in: by its name for them, else by the address that it verified.

        A password that is not proven ends: whoever chose it gets nothing of what the provider gives.
        """

        async def story(tx: Tx) -> Person | Stranger:
            rows = await tx.run("find_identity", issuer=who.issuer, subject=who.subject)
            found = rows or (await tx.run("find_person_by_email", email=who.email) if who.email else [])
            if not rows and not who.email:
                return "unverified"
            if not found and not may_add:
                return "unknown"
            person = await lock_person(tx, found[0][0] if found else (await self._add(tx, who.email, who.name)).id)
            if person is None:
                return "unknown"
            subjects = {issuer: subject for issuer, subject, _ in await tx.run("identities_of", person=person.id)}
            if subjects.get(who.issuer, who.subject) != who.subject:
                return "taken"
            if found and not person.proven:
                await _disown(tx, person.id)
            await tx.run("set_proven", id=person.id, proven=1)
            if who.issuer not in subjects:
                named = {"issuer": who.issuer, "subject": who.subject, "person": person.id}
                await tx.run("insert_identity", **named, now=self._clock.now())
                action = "account.provider" if found else "person.add"
                await audit.write(tx, msgspec.structs.replace(entry, actor=person.id, action=action))
            return await lock_person(tx, person.id) or "unknown"

        return await self._database.write(story)

    async def identities(self, person: str) -> list[IdentityLine]:
        rows = await self._database.read(lambda tx: tx.run("identities_of", person=person))
        return [IdentityLine(*row) for row in rows]

    async def forget_identities(self, person: str, entry: AuditEntry) -> None:
        """Forget them: the next sign-in with a provider finds the account by its address.

        Sessions end: some may be its.
        """

        async def story(tx: Tx) -> None:
            await lock_person(tx, person)
            if await tx.run("delete_identities", person=person):
                await tx.run("delete_sessions", person=person, kept="")
                await audit.write(tx, entry)

        await self._database.write(story)

    # -- the second factor ----------------------------------------------------------------------------------

    async def set_totp(self, id_: str, sealed: str, codes: Sequence[str], step: int, entry: AuditEntry) -> None:
        """Turn it on with its recovery codes; the code of the step is used."""

        async def story(tx: Tx) -> None:
            await _set_totp(tx, id_, sealed, codes)
            await tx.run("use_totp_step", id=id_, step=step)
            await audit.write(tx, entry)

        await self._database.write(story)

    async def end_totp(self, id_: str, entry: AuditEntry) -> None:
        async def story(tx: Tx) -> None:
            person = await lock_person(tx, id_)
            if person and person.totp:
                await _set_totp(tx, id_, None, ())
                await audit.write(tx, entry)

        await self._database.write(story)

    async def use_totp_step(self, id_: str, step: int) -> bool:
        """Use the step; return False when a code of this step or a later one was used already."""
        return bool(await self._database.write(lambda tx: tx.run("use_totp_step", id=id_, step=step)))

    async def use_recovery(self, id_: str, code: str) -> bool:
        return bool(await self._database.write(lambda tx: tx.run("use_recovery", person=id_, hash=hashed(code))))

    async def count_recovery(self, id_: str) -> int:
        ((count,),) = await self._database.read(lambda tx: tx.run("count_recovery", person=id_))
        return int(count)

    # -- roles ----------------------------------------------------------------------------------------------

    async def roles(self, person: str) -> dict[str, str]:
        """Map each team to the person's role."""
        return dict(await self._database.read(lambda tx: tx.run("memberships", person=person)))

    async def members(self, team: str) -> list[Member]:
        """Return the members, and those who are invited."""
        return [Member(*row) for row in await self._database.read(lambda tx: tx.run("members_of", team=team))]

    async def give(self, person: str, team: str, role: str, entry: AuditEntry) -> None:
        """Give a role without asking, as an identity provider says; an empty team means to run the instance."""

        async def story(tx: Tx) -> None:
            if role == READ_ONLY:
                await _keep_operator(tx, person)
            if await lock_person(tx, person):
                await tx.run("delete_invitation", person=person, team=team)
                await _give(tx, person, team, role)
                await audit.write(tx, entry)

        await self._database.write(story)

    async def set_role(self, person: str, team: str, role: str | None, entry: AuditEntry) -> None:
        """Set the role of a member, or of somebody who is invited to be one. With None they are neither any longer."""

        async def story(tx: Tx) -> None:
            if await _set_role(tx, person, team, role):
                await audit.write(tx, entry)

        await self._database.write(story)

    # -- invitations ----------------------------------------------------------------------------------------

    async def invitations(self, person: str) -> dict[str, str]:
        """Map each team to the role; an empty team means to run the instance."""
        return dict(await self._database.read(lambda tx: tx.run("invitations", person=person)))

    async def accept(self, person: str, teams: Sequence[str], entry: AuditEntry) -> bool:
        """Accept what a proven person says yes to, signed in; the others do it by the link of that team.

        Returns False when nothing is left to accept, or not by this person.
        """

        async def story(tx: Tx) -> bool:
            found = await lock_person(tx, person)
            return bool(found and found.proven and await _accept(tx, person, teams, entry))

        return await self._database.write(story)

    async def decline(self, person: str, team: str, entry: AuditEntry) -> None:
        async def story(tx: Tx) -> None:
            if await tx.run("delete_invitation", person=person, team=team):
                await tx.run("delete_links_for", person=person, team=team, purpose="invite")
                await audit.write(tx, entry)

        await self._database.write(story)

    # -- links ----------------------------------------------------------------------------------------------

    async def make_link(self, link: Link, entry: AuditEntry, *, without_code: bool = False) -> str:
        """Make a token that does once what the link says; an earlier link for the same purpose is revoked.

        When asked, it drops the code at sign-in, for somebody who lost the phone.
        """

        async def story(tx: Tx) -> str:
            if without_code:
                await _set_totp(tx, link.person, None, ())
            await audit.write(tx, entry)
            return await self._insert_link(tx, link)

        return await self._database.write(story)

    async def make_ticket(self, link: Link) -> str:
        """Make the ticket that stands between the password and the code."""
        return await self._database.write(lambda tx: self._insert_link(tx, link))

    async def _insert_link(self, tx: Tx, link: Link) -> str:
        token = self._clock.entropy(24).hex()
        expires_at = link.expires_at or self._clock.now() + LINK_MS[link.purpose]
        if link.person:
            await tx.run("delete_links_for", person=link.person, team=link.team, purpose=link.purpose)
        given = msgspec.structs.asdict(msgspec.structs.replace(link, expires_at=expires_at))
        await tx.run("insert_link", hash=hashed(token), **given)
        return token

    async def find_link(self, token: str) -> Link | None:
        """Return the link while it is valid."""
        now = self._clock.now()

        async def story(tx: Tx) -> Link | None:
            rows = await tx.run("find_link", hash=hashed(token), now=now)
            return await _judged(tx, Link(*rows[0])) if rows else None

        return await self._database.read(story)

    async def use_link(self, token: str, purpose: str) -> Link | None:
        """Return the link while it is valid, and make it invalid."""
        now = self._clock.now()
        return await self._database.write(lambda tx: _use(tx, token, purpose, now))

    async def follow(
        self, token: str, purpose: str, password: str | None, entry: AuditEntry, kept_session: str = ""
    ) -> Person | None:
        """Choose a password by a link to do so, and accept what an invitation's link is for; all of it or nothing.

        Who has a way in already accepts an invitation signed in. Unless the account is proven a new password is chosen:
        what was set through another team's link gives nothing here. None: the link is no longer valid, or not for this.
        """
        now = self._clock.now()

        async def story(tx: Tx) -> Person | None:
            rows = await tx.run("find_link", hash=hashed(token), now=now)
            person = (
                await lock_person(tx, rows[0][0]) if rows else None
            )  # first: nobody changes what the link is judged by
            link = await _use(tx, token, purpose, now)
            if link is None or person is None:
                return None
            is_here = link.only_accepts(person)
            if (is_here and not kept_session) or (password is None and not (is_here and person.proven)):
                raise NotByThis
            if password is not None:
                await _set_password(tx, person.id, password, kept_session)
                await tx.run("delete_familiar", person=person.id)
                await tx.run("delete_passkeys", person=person.id)
                await tx.run("set_proven", id=person.id, proven=link.proven)
            teams: list[str] = []
            if purpose == "invite":
                teams = [link.team] if link.team else list(dict(await tx.run("invitations", person=person.id)))
            more = "" if password is None else ", with a new password"
            if not await _accept(tx, person.id, teams, entry, more) and password is not None:
                await audit.write(tx, entry)
            return await lock_person(tx, person.id)

        try:
            return await self._database.write(story)
        except NotByThis:
            return None


class NotByThis(Exception):
    """A link was followed in a way that it is not good for: it stays as it was."""


async def lock_person(tx: Tx, id_: str) -> Person | None:
    rows = await tx.run("lock_person", id=id_)
    return Person(*rows[0]) if rows else None


async def _disown(tx: Tx, person: str) -> None:
    """Remove all ways in: whoever chose the password, or used it, may not be who has the address (ADR 0020)."""
    await tx.run("set_password", id=person, password=None)
    await _set_totp(tx, person, None, ())
    await tx.run("delete_sessions", person=person, kept="")
    await tx.run("delete_familiar", person=person)
    await tx.run("delete_passkeys", person=person)


async def _end_links(tx: Tx, person: str) -> None:
    """End the links of a person whose role has ended, and those that they made for others."""
    await tx.run("delete_links", person=person)
    await tx.run("delete_links_by", person=person)


async def _set_totp(tx: Tx, person: str, sealed: str | None, codes: Sequence[str]) -> None:
    await tx.run("set_totp", id=person, totp=sealed)
    await tx.run("delete_links", person=person)
    await tx.run("delete_recovery", person=person)
    await tx.run("insert_recovery", codes=[(person, hashed(code)) for code in codes])


async def _set_role(tx: Tx, person: str, team: str, role: str | None) -> bool:
    """Set the role and return whether it is another one. Who is no member is invited."""
    if role != "owner" and await _is_last(tx, person, "owners", team=team):
        raise InvalidRequest(LAST_OWNER)
    await lock_person(tx, person)
    held = dict(await tx.run("memberships", person=person)).get(team)
    offered = dict(await tx.run("invitations", person=person)).get(team)
    if role == (held or offered):
        return False
    if held and role:
        await tx.run("set_member", person=person, team=team, role=role)
    elif role:
        await tx.run("set_invitation", person=person, team=team, role=role)
    else:
        await tx.run("delete_member", person=person, team=team)
        await tx.run("delete_invitation", person=person, team=team)
    if held:
        await _end_links(tx, person)
    elif offered:  # something else than its links were made for
        for made_for in (team, ""):
            await tx.run("delete_links_for", person=person, team=made_for, purpose="invite")
    return True


async def _give(tx: Tx, person: str, team: str, role: str) -> None:
    if team:
        await tx.run("set_member", person=person, team=team, role=role)
    else:
        await tx.run("set_operator", id=person, operator=int(role == OPERATOR), observer=int(role == READ_ONLY))


async def _keep_operator(tx: Tx, person: str) -> None:
    if await _is_last(tx, person, "operators"):
        raise InvalidRequest(LAST_OPERATOR)


async def _set_password(tx: Tx, person: str, password: str, kept_session: str = "") -> None:
    await tx.run("set_password", id=person, password=password)
    await tx.run("delete_sessions", person=person, kept=kept_session)
    await tx.run("delete_links", person=person)


async def _accept(tx: Tx, person: str, teams: Sequence[str], entry: AuditEntry, more: str = "") -> bool:
    """Accept those invitations of these teams that are still there, each with an entry that says so."""
    taken = {team: row[0] for team in teams for row in await tx.run("delete_invitation", person=person, team=team)}
    for team, role in taken.items():
        await _give(tx, person, team, role)
        change = {"team": team or None, "action": "member.accept" if team else "operator.accept", "detail": role + more}
        await audit.write(tx, msgspec.structs.replace(entry, **change))
    if taken:
        await tx.run("delete_links", person=person)
    return bool(taken)


async def _use(tx: Tx, token: str, purpose: str, now: int) -> Link | None:
    rows = await tx.run("use_link", hash=hashed(token), now=now)
    link = await _judged(tx, Link(*rows[0])) if rows else None
    return link if link and link.purpose == purpose else None


async def _judged(tx: Tx, link: Link) -> Link | None:
    """Return the link while the rule under which it was made still holds."""
    if link.purpose not in ("invite", "reset"):
        return link
    rows = await tx.run("find_person", id=link.person)
    if not rows or (link.maker and not await _may_make(tx, link.maker, link.team)):
        return None
    person = Person(*rows[0])
    if link.purpose == "invite":
        pending = dict(await tx.run("invitations", person=person.id))
        return link if (link.team in pending if link.team else pending or not person.password) else None
    roles = dict(await tx.run("memberships", person=person.id))
    return link if not link.team or (set(roles) == {link.team} and not person.instance_role) else None


async def _may_make(tx: Tx, maker: str, team: str) -> bool:
    """Operators make every link, an owner those of the team."""
    rows = await tx.run("find_person", id=maker)
    return (
        bool(rows and Person(*rows[0]).operator) or dict(await tx.run("memberships", person=maker)).get(team) == "owner"
    )


async def _is_last(tx: Tx, person: str, query: str, **params: str) -> bool:
    """Tell whether the query, which locks its rows, finds this person alone."""
    return [row[0] for row in await tx.run(query, **params)] == [person]


def hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
