"""The people of the dashboard: accounts, roles and links.

What changes something takes its audit entry along and writes both in one transaction. What becomes of a role is
decided by `domain/accounts/people.py`, on what the transaction has locked.
"""

import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import Literal

import msgspec

from heliograph.domain.accounts.people import Link, Person, RoleChange, Standing, flags_of, still_holds
from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS
from heliograph.runtime.clock import Clock
from heliograph.storage import audit
from heliograph.storage.engine.database import Database, Tx, write_serialized

# What links are for; `ticket` is held between the password and the code.
LINK_MS = {
    "first": 7 * DAY_MS,
    "invite": 7 * DAY_MS,
    "reset": HOUR_MS,
    "demo": DAY_MS,
    "ticket": 10 * MINUTE_MS,
}
OF_A_PERSON = (  # what goes with who is forgotten, the person last; the audit log keeps the id
    "delete_memberships",
    "delete_invitations",
    "delete_recovery",
    "delete_identities",
    "delete_passkeys",
    "delete_familiar",
    "delete_notice_choices",
    "delete_decisions",
    "delete_person",
)


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
    issuer: str | None  # the identity provider that they are connected to
    offered: str | None  # the instance role that they are invited to


class Member(msgspec.Struct, frozen=True):
    id: str
    email: str
    name: str
    role: str
    has_password: int
    has_totp: int
    invited: int  # and has not accepted yet: the role counts for nothing
    issuer: str | None  # as above


# Why somebody whom a provider let in is nobody here: the address is not verified, it is nobody's and gets no role, or
# its account is another one's at that provider.
Stranger = Literal["unverified", "unknown", "taken"]
Judge = Callable[[Standing], RoleChange | None]  # None: there is nothing to change


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

    async def offer(self, email: str, name: str, teams: Collection[str], judge: Judge) -> Offered:
        """Change what the person with this address is in these teams; made when new, who is nobody to the judge."""

        async def story(tx: Tx) -> Offered:
            is_new = not await tx.run("find_person_by_email", email=email)
            person = await self._add(tx, email, name)
            standing = await _locked(tx, person.id, teams)
            change = judge(msgspec.structs.replace(standing, person=None) if is_new else standing)
            return Offered(person, await self._apply(tx, person.id, change) if change else "")

        return await write_serialized(self._database, story, next(iter(teams), None))

    async def change(self, person: str, teams: Collection[str] | None, judge: Judge) -> bool:
        """Change what somebody is in these teams (None: in all of theirs); return whether there was something to do."""

        async def story(tx: Tx) -> bool:
            standing = await _locked(tx, person, teams)
            change = judge(standing) if standing.person else None
            if change:
                await self._apply(tx, person, change)
            return change is not None

        return await write_serialized(self._database, story, next(iter(teams or ()), None))

    async def _apply(self, tx: Tx, person: str, change: RoleChange) -> str:
        """Write what becomes of somebody; return the token of the link that they get."""
        for team, role in change.roles.items():
            if not team:
                await tx.run("set_operator", id=person, **flags_of(role))
            elif role:
                await tx.run("set_member", person=person, team=team, role=role)
            else:
                await tx.run("delete_member", person=person, team=team)
        for team, role in change.invited.items():
            if role:
                await tx.run("set_invitation", person=person, team=team, role=role)
            else:
                await tx.run("delete_invitation", person=person, team=team)
        if change.ends_links:
            await tx.run("delete_links", person=person)
        if change.ends_made:
            await tx.run("delete_links_by", person=person)
        for team in change.ends_invites:
            await tx.run("delete_links_for", person=person, team=team, purpose="invite")
        if change.removes:
            await tx.run("delete_sessions", person=person, kept="")
            for query in OF_A_PERSON:
                await tx.run(query, person=person)
        token = await self._insert_link(tx, msgspec.structs.replace(change.link, person=person)) if change.link else ""
        await audit.write(tx, *change.entries)
        return token

    async def _add(self, tx: Tx, email: str, name: str) -> Person:
        await tx.run("insert_person", id=self._clock.new_id("usr_"), email=email, name=name, now=self._clock.now())
        (row,) = await tx.run("find_person_by_email", email=email)
        return Person(*row)

    async def add_first(self, token: str, email: str, name: str, password: str, change: RoleChange) -> Person | None:
        """Follow the first operator's link; None when it is no longer valid, or somebody was first."""
        now = self._clock.now()

        async def story(tx: Tx) -> Person | None:
            used = await tx.run("use_link", hash=hashed(token), now=now)
            ((count,),) = await tx.run("count_people")
            if not used or used[0][1] != "first" or count:
                return None
            await tx.run("delete_links", person="")
            person = await self._add(tx, email, name)
            await tx.run("set_proven", id=person.id, proven=1)
            await _set_password(tx, person.id, password)
            entries = [msgspec.structs.replace(entry, actor=person.id) for entry in change.entries]
            await self._apply(tx, person.id, msgspec.structs.replace(change, entries=tuple(entries)))
            return await lock_person(tx, person.id)

        return await write_serialized(self._database, story, None)

    async def set_password(self, id_: str, hashed: str, entry: AuditEntry, kept_session: str = "") -> None:
        """Set the password; earlier sessions and links become invalid."""

        async def story(tx: Tx) -> None:
            await lock_person(tx, id_)
            await _set_password(tx, id_, hashed, kept_session)
            await audit.write(tx, entry)

        await write_serialized(self._database, story, entry.actor)

    async def set_name(self, id_: str, name: str, entry: AuditEntry) -> None:
        async def story(tx: Tx) -> None:
            if await tx.run("set_name", id=id_, name=name):
                await audit.write(tx, entry)

        await write_serialized(self._database, story, entry.actor)

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

        return await write_serialized(self._database, story, entry.actor)

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

        await write_serialized(self._database, story, entry.actor)

    # -- the second factor ----------------------------------------------------------------------------------

    async def set_totp(self, id_: str, sealed: str, codes: Sequence[str], step: int, entry: AuditEntry) -> None:
        """Turn it on with its recovery codes; the code of the step is used."""

        async def story(tx: Tx) -> None:
            await _set_totp(tx, id_, sealed, codes)
            await tx.run("use_totp_step", id=id_, step=step)
            await audit.write(tx, entry)

        await write_serialized(self._database, story, entry.actor)

    async def end_totp(self, id_: str, entry: AuditEntry) -> None:
        async def story(tx: Tx) -> None:
            person = await lock_person(tx, id_)
            if person and person.totp:
                await _set_totp(tx, id_, None, ())
                await audit.write(tx, entry)

        await write_serialized(self._database, story, entry.actor)

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

    # -- invitations ----------------------------------------------------------------------------------------

    async def invitations(self, person: str) -> dict[str, str]:
        """Map each team to the role; an empty team means to run the instance."""
        return dict(await self._database.read(lambda tx: tx.run("invitations", person=person)))

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

        return await write_serialized(self._database, story, entry.actor)

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

        return await self._database.read(lambda tx: _find_link(tx, "find_link", token, now))

    async def use_link(self, token: str, purpose: str) -> Link | None:
        """Return the link while it is valid, and make it invalid."""
        now = self._clock.now()
        link = await self._database.write(lambda tx: _find_link(tx, "use_link", token, now))
        return link if link and link.purpose == purpose else None

    async def follow(
        self, token: str, judge: Callable[[Link, Standing], RoleChange | None], password: str | None, kept_session: str
    ) -> Person | None:
        """Choose a password by a link, and accept what it is for; all of it or nothing.

        None: the link is no longer valid, or the judge says that it is not good for this; then it stays as it was.
        """
        now = self._clock.now()

        async def story(tx: Tx) -> Person | None:
            for row in await tx.run("find_link", hash=hashed(token), now=now):
                await lock_person(tx, row[0])  # first: nobody changes what the link is judged by
            link = await _find_link(tx, "find_link", token, now)
            change = judge(link, await _standing(tx, link.person)) if link else None
            if not link or not change or not await tx.run("use_link", hash=hashed(token), now=now):
                return None
            if password is not None:
                await _set_password(tx, link.person, password, kept_session)
                await tx.run("delete_familiar", person=link.person)
                await tx.run("delete_passkeys", person=link.person)
                await tx.run("set_proven", id=link.person, proven=link.proven)
            await self._apply(tx, link.person, change)
            return await lock_person(tx, link.person)

        return await write_serialized(self._database, story, None)


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


async def _set_totp(tx: Tx, person: str, sealed: str | None, codes: Sequence[str]) -> None:
    await tx.run("set_totp", id=person, totp=sealed)
    await tx.run("delete_links", person=person)
    await tx.run("delete_recovery", person=person)
    await tx.run("insert_recovery", codes=[(person, hashed(code)) for code in codes])


async def _locked(tx: Tx, person: str, teams: Collection[str] | None) -> Standing:
    """Return what somebody is, with the roles that others have in these teams; all of it locked."""
    if teams is None:
        teams = ["", *sorted((await _standing(tx, person)).roles.keys() - {""})]
    others = {team: await _held_by_others(tx, team, person) for team in teams}
    return msgspec.structs.replace(await _standing(tx, person, "lock_person"), others=others)


async def _held_by_others(tx: Tx, team: str, person: str) -> frozenset[str]:
    if team:
        rows = await tx.run("lock_members", team=team)
    else:
        rows = [(row[0], Person(*row).instance_role) for row in await tx.run("lock_operators")]
    return frozenset(role for id_, role in rows if id_ != person)


async def _standing(tx: Tx, id_: str, query: str = "find_person") -> Standing:
    rows = await tx.run(query, id=id_)
    person = Person(*rows[0]) if rows else None
    of_instance = {"": person.instance_role} if person and person.instance_role else {}
    return Standing(
        person=person,
        roles=of_instance | dict(await tx.run("memberships", person=id_)),
        invited=dict(await tx.run("invitations", person=id_)),
    )


async def _set_password(tx: Tx, person: str, password: str, kept_session: str = "") -> None:
    await tx.run("set_password", id=person, password=password)
    await tx.run("delete_sessions", person=person, kept=kept_session)
    await tx.run("delete_links", person=person)


async def _find_link(tx: Tx, query: str, token: str, now: int) -> Link | None:
    """Return the link while the rule under which it was made still holds."""
    rows = await tx.run(query, hash=hashed(token), now=now)
    link = Link(*rows[0]) if rows else None
    if link and still_holds(link, await _standing(tx, link.person), await _standing(tx, link.maker)):
        return link
    return None


def hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
