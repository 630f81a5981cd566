"""Stores portals: links to pages of a team, and the sessions that they start. Only hashes of tokens are stored."""

import msgspec

from heliograph.domain.accounts.portal import LINK_LIFETIME_MS, SESSION_LIFETIME_MS, Portal
from heliograph.domain.audit.actor import AuditEntry
from heliograph.runtime.clock import Clock
from heliograph.storage import audit
from heliograph.storage.engine.database import Database, Tx, write_serialized
from heliograph.storage.people import hash_token


class PortalLink(msgspec.Struct, frozen=True, kw_only=True):
    token: str
    expires_at: int


class Portals:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def create_link(self, portal: Portal, entry: AuditEntry) -> PortalLink:
        """Create a link; also delete expired portals."""
        now = self._clock.now()
        link = PortalLink(token=self._clock.random_bytes(32).hex(), expires_at=now + LINK_LIFETIME_MS)
        params = msgspec.structs.asdict(portal) | {"pages": " ".join(portal.pages)}
        del params["csrf"]

        async def insert(tx: Tx) -> None:
            await tx.run("purge_portals", now=now)
            await tx.run("insert_portal", hash=hash_token(link.token), expires_at=link.expires_at, **params)
            await audit.write(tx, entry)

        await write_serialized(self._database, insert, entry.actor)
        return link

    async def find_link(self, token: str) -> Portal | None:
        """Return the portal of a link that was not opened yet. None if the link is not valid."""
        portal = await self._find(token)
        return portal if portal and not portal.csrf else None

    async def find_session(self, token: str) -> Portal | None:
        """Return the open portal of a session's cookie. None if the cookie is not valid."""
        portal = await self._find(token)
        return portal if portal and portal.csrf else None

    async def open(self, token: str, entry: AuditEntry) -> str | None:
        """Use up a link and return the cookie of its session; None if the link is invalid, expired or used."""
        session_token, csrf = self._clock.random_bytes(32).hex(), self._clock.random_bytes(16).hex()
        now = self._clock.now()
        params = {"hash": hash_token(token), "session_hash": hash_token(session_token), "csrf": csrf}

        async def start_session(tx: Tx) -> str | None:
            if not await tx.run("open_portal", **params, now=now, expires_at=now + SESSION_LIFETIME_MS):
                return None
            await audit.write(tx, entry)
            return session_token

        return await write_serialized(self._database, start_session, entry.actor)

    async def _find(self, token: str) -> Portal | None:
        now = self._clock.now()
        rows = await self._database.read(lambda tx: tx.run("find_portal", hash=hash_token(token), now=now))
        if not rows:
            return None
        id_, platform_key, team, pages, return_url, csrf = rows[0]
        page_names = tuple(pages.split())
        return Portal(id=id_, platform_key=platform_key, team=team, pages=page_names, return_url=return_url, csrf=csrf)
