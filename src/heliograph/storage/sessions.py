"""Stores sign-in sessions, and the browsers and networks by which users are recognised.

Signing in and ending other sessions are recorded in the audit log; signing out is not.
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

SESSION_MS = 14 * DAY_MS  # since the last use
FAMILIAR_MS = 180 * DAY_MS  # since the last sign-in from that browser or network
SPENT_MS = 15 * MINUTE_MS  # longer than the validity of any single-use token
TOUCH_MS = 5 * MINUTE_MS  # interval at which a session's last use is recorded


class SignedIn(msgspec.Struct, frozen=True):
    """A live session and its user."""

    session: str
    csrf: str
    seen_at: int
    person: str
    email: str
    name: str
    operator: int
    ends_at: int | None = None  # fixed end, regardless of use
    observer: int = 0  # 1 for a read-only operator


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
        """Create a session and return the cookie's value; also delete expired sessions and links.

        None if the password was changed meanwhile or the token `spends` was used before. `marks`: browser and network
        by which the user is recognised next time. `lasts_ms`: fixed duration, regardless of use.
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
        """Return the first of these marks with which the user signed in before. None if not found."""
        known = {row[0] for row in await self._database.read(lambda tx: tx.run("find_familiar", person=person))}
        return next((mark for mark in marks if hashed(mark) in known), None)

    async def find(self, token: str) -> SignedIn | None:
        """Return the live session of a cookie, and record its use. None if not found."""
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
        """End all sessions except `kept`."""
        await self._end("delete_sessions", entry, person=person, kept=kept)

    async def _end(self, query: str, entry: AuditEntry, **given: str) -> None:
        async def story(tx: Tx) -> None:
            await audit.write(tx, entry if await tx.run(query, **given) else None)

        await write_serialized(self._database, story, entry.actor)
