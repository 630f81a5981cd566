"""One walk over all pages for each role: whatever a page offers, a link or a form, its reader may open or send."""

import re
from html import unescape
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest

from heliograph.dashboard.pages import PAGES
from heliograph.domain.setup.records import CarrierRecord, TeamRecord, Template, Webhook
from heliograph.storage.store import Store
from tests.api.test_own_writes import DISPLAYED, HOOK, MAIL, TOKEN, api_of, ask, domain, key
from tests.clocks import TestClock
from tests.dashboard.inside import OBSERVER, OPERATOR, Pages, set_up
from tests.storage.test_idempotency import make_context

pytestmark = pytest.mark.anyio

RANKS = ("anyone", "person", "viewer", "developer", "owner", OPERATOR)
ACCOUNT = "/dashboard/account"  # everybody's own, whatever their role
NOT_WALKED = ("/live", "/sign-out", "/account/provider", "/sign-in/provider", ".csv", "/export", "/zone", "/eml")
PAGES_MAX = 400  # of one walk

_LINK = re.compile(r'<a\b[^>]*\bhref="([^"]*)"')
_FORM = re.compile(r"<form\b([^>]*)>(.*?)</form>", re.DOTALL)
_ACTION = re.compile(r'\b(?:form)?action="([^"]*)"')


@pytest.fixture
async def pages(store: Store, clock: TestClock) -> Pages:
    """A team with one of everything, and another that is suspended."""
    words: dict[str, Any] = {"team": "team_a", "channel": "email", "subject": "S", "text": "T"}
    await set_up(
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
    status, said = await ask(api_of(store, clock), TOKEN, "POST", "/v1/emails", MAIL)
    assert status == 202, said
    return Pages(make_context(store, clock))


@pytest.mark.apart
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("who", ["viewer", "developer", "owner", OPERATOR, OBSERVER])
async def test_nobody_is_offered_what_they_may_not(pages: Pages, who: str) -> None:
    waiting = ["/dashboard", *(f"/dashboard/teams/{team}" for team in ("team_a", "team_s"))]
    waiting += ["/dashboard/operator"] if who in (OPERATOR, OBSERVER) else []
    seen, wrong = dict.fromkeys(waiting, "the start"), []
    for count, path in enumerate(waiting):
        assert count < PAGES_MAX, path
        shown = await pages.get(path, who)
        if shown.status in (403, 404) or shown.status >= 500:
            wrong.append(f"{seen[path]} offers {path}: {shown.status}")
        wrong += [f"{path} has a form for {to}" for to in _forms(path, shown.html) if not _may_send(to, who)]
        for link in _links(path, shown.html):
            if link not in seen:
                seen[link] = path
                waiting.append(link)
    assert not wrong
    assert len(waiting) > 20


def _links(path: str, html: str) -> list[str]:
    found = [urljoin(path, unescape(one)) for one in _LINK.findall(html)]
    own = [one.partition("#")[0] for one in found if one.startswith("/dashboard") and not one.startswith(ACCOUNT)]
    return [one for one in own if not urlsplit(one).path.endswith(NOT_WALKED)]


def _forms(path: str, html: str) -> list[str]:
    """Where the forms of a page lead that change something."""
    found = []
    for tag, inside in _FORM.findall(html):
        if 'method="post"' in tag.lower():
            found += [urljoin(path, unescape(one)) for one in _ACTION.findall(tag + inside)] or [path]
    return found


def _may_send(to: str, who: str) -> bool:
    needs = [
        route.need
        for route in PAGES
        if route.method == "POST" and re.fullmatch(re.sub(r"{\w+}", "[^/]+", route.path), urlsplit(to).path)
    ]
    own = "person" if who == OBSERVER else who
    return bool(needs) and RANKS.index(needs[0]) <= RANKS.index(own)
