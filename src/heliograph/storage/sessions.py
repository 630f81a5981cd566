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
from heliograph.storage.people import hash_token, lock_person

SESSION_MS = 14 * DAY_MS  # validity of a session after its last use
FAMILIAR_DEVICE_MS = 180 * DAY_MS  # how long a browser or network is recognised after its last sign-in
USED_TOKEN_MS = 15 * MINUTE_MS  # longer than the validity of any single-use token
TOUCH_INTERVAL_MS = 5 * MINUTE_MS  # interval at which a session's last use is recorded


class SignedInSession(msgspec.Struct, frozen=True):
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


class SessionRow(msgspec.Struct, frozen=True):
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
        device_marks: Sequence[str] = (),
        *,
        entry: AuditEntry | None = None,
        duration_ms: int | None = None,
        single_use_token: str = "",
    ) -> str | None:
        """Create a session and return the cookie's value; also delete expired sessions and links.

        Returns None if the password was changed meanwhile or the single-use token was used before. `device_marks`
        identify the browser and network, to recognise the user next time. `duration_ms`: fixed duration of the session,
        regardless of use.
        """
        token, csrf = self._clock.random_bytes(32).hex(), self._clock.random_bytes(16).hex()
        id_, now = self._clock.new_id("ses_"), self._clock.now()

        async def create_session(tx: Tx) -> str | None:
            current_person = await lock_person(tx, person.id)
            if current_person is None or current_person.password != person.password:
                return None
            await tx.run("purge_sessions", now=now)
            await tx.run("purge_links", now=now)
            if single_use_token and not await tx.run(
                "use_once", hash=hash_token(single_use_token), expires_at=now + USED_TOKEN_MS
            ):
                return None
            await tx.run("purge_familiar", before=now - FAMILIAR_DEVICE_MS)
            await tx.run("set_familiar", marks=[(person.id, hash_token(mark), now) for mark in device_marks])
            await tx.run(
                "insert_session",
                hash=hash_token(token),
                id=id_,
                person=person.id,
                csrf=csrf,
                address=address,
                agent=agent[:200],
                now=now,
                expires_at=now + min(SESSION_MS, duration_ms or SESSION_MS),
                ends_at=now + duration_ms if duration_ms else None,
            )
            await audit.write(tx, entry)
            return token

        return await write_serialized(self._database, create_session, person.id)

    async def find_familiar_device(self, person: str, device_marks: Sequence[str]) -> str | None:
        """Return the first of these browser or network identifiers that is known from the user's earlier sign-ins."""
        known_hashes = {row[0] for row in await self._database.read(lambda tx: tx.run("find_familiar", person=person))}
        return next((mark for mark in device_marks if hash_token(mark) in known_hashes), None)

    async def find(self, token: str) -> SignedInSession | None:
        """Return the live session of a cookie, and record that it was used. None if not found."""
        now = self._clock.now()
        rows = await self._database.read(lambda tx: tx.run("find_session", hash=hash_token(token), now=now))
        if not rows:
            return None
        session = SignedInSession(*rows[0])
        if session.seen_at < now - TOUCH_INTERVAL_MS:
            expires_at = min(now + SESSION_MS, session.ends_at or now + SESSION_MS)
            await self._database.write(
                lambda tx: tx.run("touch_session", hash=hash_token(token), now=now, expires_at=expires_at)
            )
        return session

    async def list_sessions(self, person: str) -> list[SessionRow]:
        now = self._clock.now()
        rows = await self._database.read(lambda tx: tx.run("sessions_of", person=person, now=now))
        return [SessionRow(*row) for row in rows]

    async def sign_out(self, person: str, session: str) -> None:
        await self._database.write(lambda tx: tx.run("delete_session", person=person, id=session))

    async def end_session(self, person: str, session: str, entry: AuditEntry) -> None:
        await self._end_sessions("delete_session", entry, person=person, id=session)

    async def end_other_sessions(self, person: str, kept_session: str, entry: AuditEntry) -> None:
        """End all sessions of a user except `kept_session`."""
        await self._end_sessions("delete_sessions", entry, person=person, kept=kept_session)

    async def _end_sessions(self, query: str, entry: AuditEntry, **params: str) -> None:
        async def delete_and_audit(tx: Tx) -> None:
            await audit.write(tx, entry if await tx.run(query, **params) else None)

        await write_serialized(self._database, delete_and_audit, entry.actor)
