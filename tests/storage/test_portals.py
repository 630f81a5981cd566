"""Portals: a link becomes one session, even if it is opened concurrently."""

import asyncio

import pytest

from heliograph.domain.accounts.portal import SESSION_LIFETIME_MS, Portal
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.manage import keys, teams
from heliograph.manage.keys import NewKey
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql
from tests.storage.samples import ENTRY

pytestmark = pytest.mark.anyio

PORTAL = Portal(id="ptl_1", platform_key="4fTzQ8kW1b", team="team_a", pages=("webhooks", "keys"), return_url="")


async def test_link_becomes_one_session(store: Store, other: Store, clock: TestClock, sql: Sql) -> None:
    link = await store.portals.create_link(PORTAL, ENTRY)
    assert await other.portals.find_link(link.token) == PORTAL
    assert await store.portals.find_session(link.token) is None
    tokens = await asyncio.gather(*(one.portals.open(link.token, ENTRY) for one in (store, other) * 3))
    (token,) = filter(None, tokens)
    session = await other.portals.find_session(token)
    assert session and session.csrf
    assert (session.id, session.pages) == (PORTAL.id, PORTAL.pages)
    for unusable in (link.token, token):
        assert await store.portals.find_link(unusable) is None
    clock.forward(SESSION_LIFETIME_MS)
    assert await store.portals.find_session(token) is None
    await store.portals.create_link(Portal(id="ptl_2", platform_key="", team="", pages=(), return_url=""), ENTRY)
    assert await sql("SELECT id FROM portal") == [("ptl_2",)]


async def test_portals_end_with_their_key_and_team(store: Store, sql: Sql) -> None:
    created = [
        await keys.create(store, COMMAND_LINE, NewKey(team="", scopes=("operate",), name=name)) for name in ("a", "b")
    ]
    for id_ in ("team_one", "team_two"):
        await teams.create(store, COMMAND_LINE, {"id": id_})
        for key in created:
            portal = Portal(
                id=f"{id_} {key.key.name}", platform_key=key.key.id, team=id_, pages=("keys",), return_url=""
            )
            await store.portals.create_link(portal, ENTRY)
    await keys.revoke(store, COMMAND_LINE, created[0].key.id)
    assert await sql("SELECT id FROM portal ORDER BY id") == [("team_one b",), ("team_two b",)]
    await teams.request_deletion(store, COMMAND_LINE, "team_two")
    assert await sql("SELECT id FROM portal ORDER BY id") == [("team_one b",)]
