"""A suspended team looks, takes away and tidies up; it neither sends nor prepares to, whichever form it posts."""

from typing import Any

import pytest

from heliograph.dashboard.pages import PAGES, TEAM, PageRoute
from heliograph.domain.setup.records import TeamRecord
from heliograph.storage.store import Store
from tests.dashboard.inside import Pages, set_up
from tests.storage.test_idempotency import make_context

FORMS = [route for route in PAGES if route.method == "POST" and route.path.startswith(TEAM)]
OPEN = {
    *("/team/{person}/role", "/team/{person}/remove", "/keys/{key}/revoke"),
    *("/webhooks/{webhook}/switch", "/webhooks/{webhook}/rotate", "/webhooks/{webhook}/remove"),
    *(
        "/inbox",
        "/inbox/{id}/delete",
        "/inbox/{id}/unread",
        "/opt-outs",
        "/suppressions",
        "/suppressions/erase",
        "/suppressions/import",
    ),
    *("/senders/remove", "/senders/decide", "/senders/domains/{id}/remove"),
    *("/layouts/{layout}/archive", "/templates/{template}/archive", "/templates/{template}/discard"),
    *("/templates/{template}/approve", "/templates/{template}/refuse"),
    *("/settings/keep", "/settings/sandbox", "/notices/remove"),
}
SHUT = [route for route in FORMS if route.path.removeprefix(TEAM) not in OPEN]


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    record = TeamRecord(ref=1, id="team_acme", name="Acme", suspended=True, features=("verify",))
    await set_up(store, ("team", record.id, record, record.id))
    return Pages(make_context(store, clock))


@pytest.mark.anyio
async def test_no_form_sends_or_prepares_to(pages: Pages) -> None:
    version = pages.setup.version
    for route in SHUT:
        for who in ("owner", "operator"):
            shown = await pages.post(_place(route), {"address": "+447400123456", "name": "server"}, who)
            assert (shown.status, "suspended" in shown.text) == (403, True), f"{route.path} as {who}: {shown.text}"
    assert pages.setup.version == version


@pytest.mark.anyio
async def test_what_takes_away_stays_open(pages: Pages) -> None:
    for route in FORMS:
        if route not in SHUT:
            shown = await pages.post(_place(route), who="operator")
            assert shown.status != 403, route.path


def _place(route: PageRoute) -> str:
    ids = dict.fromkeys(("person", "key", "webhook", "id", "layout", "template"), "none")
    return route.path.format(team="team_acme", **ids)
