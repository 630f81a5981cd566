"""For each role, crawl all pages: the user may open every link and submit every form that a page offers."""

import re
from html import unescape
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest

from heliograph.dashboard.pages import PAGES
from heliograph.domain.setup.records import CarrierRecord, TeamRecord, Template, Webhook
from heliograph.storage.store import Store
from tests.api.test_own_writes import DISPLAYED, HOOK, MAIL, TOKEN, api_of, domain, key, send_request
from tests.clocks import TestClock
from tests.dashboard.inside import OBSERVER, OPERATOR, Pages, write_records
from tests.storage.test_idempotency import make_context

pytestmark = pytest.mark.anyio

RANKS = ("anyone", "person", "viewer", "developer", "owner", OPERATOR)
ACCOUNT = "/dashboard/account"  # account pages are open to every role
NOT_WALKED = ("/live", "/sign-out", "/account/provider", "/sign-in/provider", ".csv", "/export", "/zone", "/eml")
PAGES_MAX = 400  # of one walk

_LINK = re.compile(r'<a\b[^>]*\bhref="([^"]*)"')
_FORM = re.compile(r"<form\b([^>]*)>(.*?)</form>", re.DOTALL)
_ACTION = re.compile(r'\b(?:form)?action="([^"]*)"')


@pytest.fixture
async def pages(store: Store, clock: TestClock) -> Pages:
    """A team with an object of every kind, and another team that is suspended."""
    words: dict[str, Any] = {"team": "team_a", "channel": "email", "subject": "S", "text": "T"}
    await write_records(
        store,
        ("team", "team_a", TeamRecord(ref=1, id="team_a", name="A", mode="live", rate_limit=0), "team_a"),
        ("team", "team_s", TeamRecord(ref=2, id="team_s", name="S", mode="sandbox", suspended=True), "team_s"),
        ("carrier", "mail", CarrierRecord(id="mail", channel="email", kind="simulator"), None),
        key(TOKEN),
        domain("a.test"),
        ("display_name", "dn_new", DISPLAYED, "team_a"),
        HOOK,
        ("webhook", "whk_s", Webhook(id="whk_s", team="team_s", url="https://s.test", secret=""), "team_s"),
        ("template", "tpl_live", Template(id="tpl_live", name="Live", **words), "team_a"),
        ("template", "tpl_draft", Template(id="tpl_draft", name="Draft", status="draft", **words), "team_a"),
        ("template", "tpl_old", Template(id="tpl_old", name="Old", status="archived", **words), "team_a"),
    )
    status, said = await send_request(api_of(store, clock), TOKEN, "POST", "/v1/emails", MAIL)
    assert status == 202, said
    return Pages(make_context(store, clock))


@pytest.mark.apart
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("who", ["viewer", "developer", "owner", OPERATOR, OBSERVER])
async def test_pages_link_only_to_allowed_pages(pages: Pages, who: str) -> None:
    waiting = ["/dashboard", *(f"/dashboard/teams/{team}" for team in ("team_a", "team_s"))]
    waiting += ["/dashboard/operator"] if who in (OPERATOR, OBSERVER) else []
    found_on, wrong = dict.fromkeys(waiting, "the start"), []
    for count, path in enumerate(waiting):
        assert count < PAGES_MAX, path
        response = await pages.get(path, who)
        if response.status in (403, 404) or response.status >= 500:
            wrong.append(f"{found_on[path]} offers {path}: {response.status}")
        wrong += [f"{path} has a form for {to}" for to in _form_targets(path, response.html) if not _may_send(to, who)]
        for link in _linked_paths(path, response.html):
            if link not in found_on:
                found_on[link] = path
                waiting.append(link)
    assert not wrong
    assert len(waiting) > 20


def _linked_paths(path: str, html: str) -> list[str]:
    targets = [urljoin(path, unescape(target)) for target in _LINK.findall(html)]
    paths = [
        target.partition("#")[0]
        for target in targets
        if target.startswith("/dashboard") and not target.startswith(ACCOUNT)
    ]
    return [target for target in paths if not urlsplit(target).path.endswith(NOT_WALKED)]


def _form_targets(path: str, html: str) -> list[str]:
    """Return the targets of all POST forms of a page."""
    targets = []
    for tag, inside in _FORM.findall(html):
        if 'method="post"' in tag.lower():
            targets += [urljoin(path, unescape(target)) for target in _ACTION.findall(tag + inside)] or [path]
    return targets


def _may_send(to: str, who: str) -> bool:
    needs = [
        route.required_role
        for route in PAGES
        if route.method == "POST" and re.fullmatch(re.sub(r"{\w+}", "[^/]+", route.path), urlsplit(to).path)
    ]
    role = "person" if who == OBSERVER else who
    return bool(needs) and RANKS.index(needs[0]) <= RANKS.index(role)
