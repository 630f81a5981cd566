"""The people of the dashboard: accounts, roles, sessions and links.

What changes something takes its audit entry along and writes both in one transaction.
"""

import hashlib
from collections.abc import Sequence

import msgspec

from heliograph.clock import Clock
from heliograph.rules.limits import DAY_MS, HOUR_MS, MINUTE_MS
from heliograph.storage import audit
from heliograph.storage.audit import NEWEST, AuditEntry, AuditLine
from heliograph.storage.database import Database, Tx

SESSION_MS = 14 * DAY_MS  # since it was last used
FAMILIAR_MS = 180 * DAY_MS  # since somebody last signed in from there
TOUCH_MS = 5 * MINUTE_MS  # a session's last use is noted this often
LINK_MS = {"first": 7 * DAY_MS, "welcome": 7 * DAY_MS, "reset": HOUR_MS, "demo": DAY_MS}


class Person(msgspec.Struct, frozen=True):
    id: str
    email: str
    name: str
    password: str | None
    totp: str | None  # sealed
    operator: int


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


class Member(msgspec.Struct, frozen=True):
    id: str
    email: str
    name: str
    role: str
    has_password: int
    has_totp: int


class SignedIn(msgspec.Struct, frozen=True):
    """A live session and who is behind it."""

    session: str
    csrf: str
    seen_at: int
    person: str
    email: str
    name: str
    operator: int
    has_totp: int


class SessionLine(msgspec.Struct, frozen=True):
    id: str
    address: str
    agent: str
    created_at: int
    seen_at: int


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
        """By address; one more than the limit, when there are more."""
        wild = "".join(f"!{c}" if c in "!%_" else c for c in search.lower())
        rows = await self._database.read(
            lambda tx: tx.run("list_people", pattern=f"%{wild}%", after=after, limit=limit + 1)
        )
        return [PersonLine(*row) for row in rows]

    async def add(self, email: str, name: str, *, operator: bool = False) -> Person:
        """The person with this address, made when new."""
        return await self._database.write(lambda tx: self._add(tx, email, name, operator))

    async def _add(self, tx: Tx, email: str, name: str, operator: bool) -> Person:
        id_, now = self._clock.new_id("usr_"), self._clock.now()
        await tx.run("insert_person", id=id_, email=email, name=name, operator=int(operator), now=now)
        (row,) = await tx.run("find_person_by_email", email=email)
        return Person(*row)

    async def add_first(self, token: str, email: str, name: str) -> Person | None:
        """Follow the first operator's link; None when it is good no more, or somebody was first."""
        now = self._clock.now()

        async def story(tx: Tx) -> Person | None:
            used = await tx.run("use_link", hash=hashed(token), now=now)
            ((count,),) = await tx.run("count_people")
            if not used or count:
                return None
            await tx.run("delete_links", person="")
            return await self._add(tx, email, name, operator=True)

        return await self._database.write(story)

    async def set_password(self, id_: str, hashed: str, note: AuditEntry, kept_session: str = "") -> None:
        """Sessions and links of before are good no more."""

        async def story(tx: Tx) -> None:
            await tx.run("set_password", id=id_, password=hashed)
            await tx.run("delete_sessions", person=id_, kept=kept_session)
            await tx.run("delete_links", person=id_)
            await audit.write(tx, note)

        await self._database.write(story)

    async def set_name(self, id_: str, name: str, note: AuditEntry) -> None:
        async def story(tx: Tx) -> None:
            await tx.run("set_name", id=id_, name=name)
            await audit.write(tx, note)

        await self._database.write(story)

    async def set_operator(self, id_: str, operator: bool, note: AuditEntry) -> bool:
        """False: this is the last operator, who stays."""

        async def story(tx: Tx) -> bool:
            if not operator and await _is_last(tx, id_, "operators"):
                return False
            await tx.run("set_operator", id=id_, operator=int(operator))
            await audit.write(tx, note)
            return True

        return await self._database.write(story)

    async def remove(self, id_: str, note: AuditEntry) -> bool:
        """Forget a person; the audit log keeps the id. False: this is the last operator, who stays."""

        async def story(tx: Tx) -> bool:
            if await _is_last(tx, id_, "operators"):
                return False
            await tx.run("delete_sessions", person=id_, kept="")
            for query in ("delete_memberships", "delete_links", "delete_recovery", "delete_familiar", "delete_person"):
                await tx.run(query, person=id_)
            await audit.write(tx, note)
            return True

        return await self._database.write(story)

    # -- the second factor ----------------------------------------------------------------------------------

    async def set_totp(self, id_: str, sealed: str | None, codes: Sequence[str], note: AuditEntry) -> None:
        """Turn it on with its recovery codes, or off with None."""

        async def story(tx: Tx) -> None:
            await tx.run("set_totp", id=id_, totp=sealed)
            await tx.run("delete_recovery", person=id_)
            await tx.run("insert_recovery", codes=[(id_, hashed(code)) for code in codes])
            await audit.write(tx, note)

        await self._database.write(story)

    async def use_totp_step(self, id_: str, step: int) -> bool:
        """False: a code of this step or a later one was used already."""
        return bool(await self._database.write(lambda tx: tx.run("use_totp_step", id=id_, step=step)))

    async def use_recovery(self, id_: str, code: str) -> bool:
        return bool(await self._database.write(lambda tx: tx.run("use_recovery", person=id_, hash=hashed(code))))

    async def count_recovery(self, id_: str) -> int:
        ((count,),) = await self._database.read(lambda tx: tx.run("count_recovery", person=id_))
        return int(count)

    # -- roles ----------------------------------------------------------------------------------------------

    async def roles(self, person: str) -> dict[str, str]:
        """Team → role."""
        return dict(await self._database.read(lambda tx: tx.run("memberships", person=person)))

    async def members(self, team: str) -> list[Member]:
        return [Member(*row) for row in await self._database.read(lambda tx: tx.run("members_of", team=team))]

    async def set_role(self, person: str, team: str, role: str | None, note: AuditEntry | None = None) -> bool:
        """None: no longer a member. False: this is the team's last owner, who stays one."""

        async def story(tx: Tx) -> bool:
            if role != "owner" and await _is_last(tx, person, "owners", team=team):
                return False
            if role is None:
                await tx.run("delete_member", person=person, team=team)
            else:
                await tx.run("set_member", person=person, team=team, role=role)
            await audit.write(tx, note)
            return True

        return await self._database.write(story)

    # -- sessions -------------------------------------------------------------------------------------------

    async def sign_in(self, person: str, address: str, agent: str, marks: Sequence[str] = ()) -> str:
        """Begin a session; answers the cookie's value. By the marks, a browser and a network, this person is known
        again. Puts away what is over.
        """
        token, csrf = self._clock.entropy(32).hex(), self._clock.entropy(16).hex()
        id_, now = self._clock.new_id("ses_"), self._clock.now()

        async def story(tx: Tx) -> None:
            await tx.run("purge_sessions", now=now)
            await tx.run("purge_links", now=now)
            await tx.run("purge_familiar", before=now - FAMILIAR_MS)
            await tx.run("set_familiar", marks=[(person, hashed(mark), now) for mark in marks])
            await tx.run(
                "insert_session",
                hash=hashed(token),
                id=id_,
                person=person,
                csrf=csrf,
                address=address,
                agent=agent[:200],
                now=now,
                expires_at=now + SESSION_MS,
            )

        await self._database.write(story)
        return token

    async def familiar(self, person: str, marks: Sequence[str]) -> str | None:
        """The first of these marks that this person signed in with before."""
        known = {row[0] for row in await self._database.read(lambda tx: tx.run("find_familiar", person=person))}
        return next((mark for mark in marks if hashed(mark) in known), None)

    async def session(self, token: str) -> SignedIn | None:
        now = self._clock.now()
        rows = await self._database.read(lambda tx: tx.run("find_session", hash=hashed(token), now=now))
        if not rows:
            return None
        found = SignedIn(*rows[0])
        if found.seen_at < now - TOUCH_MS:
            await self._database.write(
                lambda tx: tx.run("touch_session", hash=hashed(token), now=now, expires_at=now + SESSION_MS)
            )
        return found

    async def sessions(self, person: str) -> list[SessionLine]:
        now = self._clock.now()
        rows = await self._database.read(lambda tx: tx.run("sessions_of", person=person, now=now))
        return [SessionLine(*row) for row in rows]

    async def end_session(self, person: str, id_: str) -> None:
        await self._database.write(lambda tx: tx.run("delete_session", person=person, id=id_))

    async def end_other_sessions(self, person: str, kept: str) -> None:
        await self._database.write(lambda tx: tx.run("delete_sessions", person=person, kept=kept))

    # -- links ----------------------------------------------------------------------------------------------

    async def make_link(self, person: str, purpose: str, note: AuditEntry | None = None) -> str:
        """A token that lets this person in once. The first operator is nobody yet: empty."""
        token, now = self._clock.entropy(24).hex(), self._clock.now()
        expires_at = now + LINK_MS[purpose]

        async def story(tx: Tx) -> None:
            await tx.run("insert_link", hash=hashed(token), person=person, purpose=purpose, expires_at=expires_at)
            await audit.write(tx, note)

        await self._database.write(story)
        return token

    async def find_link(self, token: str) -> tuple[str, str] | None:
        """Person and purpose, while the link is good."""
        now = self._clock.now()
        rows = await self._database.read(lambda tx: tx.run("find_link", hash=hashed(token), now=now))
        return (rows[0][0], rows[0][1]) if rows else None

    async def use_link(self, token: str) -> tuple[str, str] | None:
        """The same, and it is good no more."""
        now = self._clock.now()
        rows = await self._database.write(lambda tx: tx.run("use_link", hash=hashed(token), now=now))
        return (rows[0][0], rows[0][1]) if rows else None

    # -- audit ----------------------------------------------------------------------------------------------

    async def note(self, entries: Sequence[AuditEntry]) -> None:
        await self._database.write(lambda tx: audit.write(tx, *entries))

    async def audit(self, team: str | None, before: int = NEWEST, limit: int = 50) -> Sequence[AuditLine]:
        """Newest first; one more than the limit, when there are more. No team: the whole instance."""
        return await self._database.read(lambda tx: audit.lines(tx, team, before, limit))


async def _is_last(tx: Tx, person: str, query: str, **params: str) -> bool:
    """Whether the query, which locks its rows, finds this person alone."""
    return [row[0] for row in await tx.run(query, **params)] == [person]


def hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
