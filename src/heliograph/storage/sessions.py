"""Sessions of people who signed in, and the browsers and networks they are recognised by.

Signing in is recorded in the audit log, and so is ending other sessions; signing out is not.
"""

from collections.abc import Sequence

import msgspec

from heliograph.domain.accounts.people import Person
from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.limits import DAY_MS, MINUTE_MS
from heliograph.runtime.clock import Clock
from heliograph.storage import audit
from heliograph.storage.engine.database import Database, Tx, write_serialized
from heliograph.storage.people import hashed, lock_person

SESSION_MS = 14 * DAY_MS  # since it was last used
FAMILIAR_MS = 180 * DAY_MS  # since somebody last signed in from there
SPENT_MS = 15 * MINUTE_MS  # longer than anything lives that is good once
TOUCH_MS = 5 * MINUTE_MS  # a session's last use is noted this often


class SignedIn(msgspec.Struct, frozen=True):
    """A live session and who is behind it."""

    session: str
    csrf: str
    seen_at: int
    person: str
    email: str
    name: str
    operator: int
    ends_at: int | None = None  # however much it is used
    observer: int = 0  # a read-only operator


class SessionLine(msgspec.Struct, frozen=True):
    id: str
    address: str
    agent: str
    created_at: int
    seen_at: int


class Sessions:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def sign_in(
        self,
        person: Person,
        address: str,
        agent: str,
        marks: Sequence[str] = (),
        *,
        entry: AuditEntry | None = None,
        lasts_ms: int | None = None,
        spends: str = "",
    ) -> str | None:
        """Begin a session; returns the cookie's value. None: the password was changed meanwhile, or what this spends
        was spent before. By the marks, a browser and a network, this person is recognised next time. Deletes what has
        expired. `lasts_ms`: how long it lasts however much it is used.
        """
        token, csrf = self._clock.entropy(32).hex(), self._clock.entropy(16).hex()
        id_, now = self._clock.new_id("ses_"), self._clock.now()

        async def story(tx: Tx) -> str | None:
            found = await lock_person(tx, person.id)
            if found is None or found.password != person.password:
                return None
            await tx.run("purge_sessions", now=now)
            await tx.run("purge_links", now=now)
            if spends and not await tx.run("spend", hash=hashed(spends), expires_at=now + SPENT_MS):
                return None
            await tx.run("purge_familiar", before=now - FAMILIAR_MS)
            await tx.run("set_familiar", marks=[(person.id, hashed(mark), now) for mark in marks])
            await tx.run(
                "insert_session",
                hash=hashed(token),
                id=id_,
                person=person.id,
                csrf=csrf,
                address=address,
                agent=agent[:200],
                now=now,
                expires_at=now + min(SESSION_MS, lasts_ms or SESSION_MS),
                ends_at=now + lasts_ms if lasts_ms else None,
            )
            await audit.write(tx, entry)
            return token

        return await write_serialized(self._database, story, person.id)

    async def familiar(self, person: str, marks: Sequence[str]) -> str | None:
        """Return the first of these marks that this person signed in with before."""
        known = {row[0] for row in await self._database.read(lambda tx: tx.run("find_familiar", person=person))}
        return next((mark for mark in marks if hashed(mark) in known), None)

    async def find(self, token: str) -> SignedIn | None:
        now = self._clock.now()
        rows = await self._database.read(lambda tx: tx.run("find_session", hash=hashed(token), now=now))
        if not rows:
            return None
        found = SignedIn(*rows[0])
        if found.seen_at < now - TOUCH_MS:
            until = min(now + SESSION_MS, found.ends_at or now + SESSION_MS)
            await self._database.write(
                lambda tx: tx.run("touch_session", hash=hashed(token), now=now, expires_at=until)
            )
        return found

    async def of(self, person: str) -> list[SessionLine]:
        now = self._clock.now()
        rows = await self._database.read(lambda tx: tx.run("sessions_of", person=person, now=now))
        return [SessionLine(*row) for row in rows]

    async def sign_out(self, person: str, session: str) -> None:
        await self._database.write(lambda tx: tx.run("delete_session", person=person, id=session))

    async def end(self, person: str, session: str, entry: AuditEntry) -> None:
        await self._end("delete_session", entry, person=person, id=session)

    async def end_all(self, person: str, kept: str, entry: AuditEntry) -> None:
        """End all sessions but the one that is kept."""
        await self._end("delete_sessions", entry, person=person, kept=kept)

    async def _end(self, query: str, entry: AuditEntry, **given: str) -> None:
        async def story(tx: Tx) -> None:
            await audit.write(tx, entry if await tx.run(query, **given) else None)

        await write_serialized(self._database, story, entry.actor)
