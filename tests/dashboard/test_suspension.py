"""A suspended team can view, export and clean up; every form that sends or prepares a send is rejected."""

from typing import Any

import pytest

from heliograph.dashboard.pages import PAGES, TEAM_PATH, PageRoute
from heliograph.domain.setup.records import TeamRecord
from heliograph.storage.store import Store
from tests.dashboard.inside import Pages, write_records
from tests.storage.test_idempotency import make_context

FORMS = [route for route in PAGES if route.method == "POST" and route.path.startswith(TEAM_PATH)]
OPEN = {
    *("/team/{person}/role", "/team/{person}/remove", "/keys/{key}/revoke", "/keys/{key}/restrictions"),
    "/approvals/{id}/reject",
    *("/webhooks/{webhook}/switch", "/webhooks/{webhook}/rotate", "/webhooks/{webhook}/remove"),
    *(
        "/inbox",
        "/inbox/{id}/delete",
        "/inbox/{id}/unread",
        "/opt-outs",
        "/unsubscribes",
        "/suppressions",
        "/suppressions/erase",
        "/suppressions/import",
    ),
    *("/senders/remove", "/senders/decide", "/senders/domains/{id}/remove"),
    *("/layouts/{layout}/archive", "/templates/{template}/archive", "/templates/{template}/discard"),
    *("/templates/{template}/approve", "/templates/{template}/refuse"),
    *("/settings/keep", "/settings/categories", "/settings/sandbox", "/notices/remove"),
}
SHUT = [route for route in FORMS if route.path.removeprefix(TEAM_PATH) not in OPEN]


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    record = TeamRecord(ref=1, id="team_acme", name="Acme", suspended=True, features=("verify",))
    await write_records(store, ("team", record.id, record, record.id))
    return Pages(make_context(store, clock))


@pytest.mark.anyio
async def test_suspended_team_cannot_send(pages: Pages) -> None:
    version = pages.setup.version
    for route in SHUT:
        for who in ("owner", "operator"):
            response = await pages.post(_example_path(route), {"address": "+447400123456", "name": "server"}, who)
            assert (response.status, "suspended" in response.text) == (403, True), (
                f"{route.path} as {who}: {response.text}"
            )
    assert pages.setup.version == version


@pytest.mark.anyio
async def test_suspended_team_can_use_remaining_forms(pages: Pages) -> None:
    for route in FORMS:
        if route not in SHUT:
            response = await pages.post(_example_path(route), who="operator")
            assert response.status != 403, route.path


def _example_path(route: PageRoute) -> str:
    ids = dict.fromkeys(("person", "key", "webhook", "id", "layout", "template"), "none")
    return route.path.format(team="team_acme", **ids)
