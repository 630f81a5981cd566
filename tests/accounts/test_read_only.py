"""A read-only operator sees what an operator sees, and changes nothing: every page by its row in the table."""

import re
from html import unescape

import pytest

from heliograph.dashboard.pages import PAGES
from heliograph.domain.accounts.idp_groups import READ_ONLY
from heliograph.manage.people import admit
from heliograph.storage.people import Identity
from tests.accounts.house import PASSWORD, Browser, House

pytestmark = pytest.mark.anyio

OPERATOR, A = "/dashboard/operator", "/dashboard/teams/team_a"
EVE, ROOT = "eve@example.com", "root@example.com"
OWN = ("anyone", "person")  # pages of nobody, and of the own account


async def observer(house: House) -> Browser:
    made = await house.offer(EVE, **{"": READ_ONLY})
    browser = house.browser()
    assert (await browser.post(f"/dashboard/link/{made.token}", password=PASSWORD)).status == 303
    return browser


def filled(path: str) -> str:
    return re.sub(r"\{\w+\}", "x1", path.replace("{team}", "team_a"))


async def test_every_form_is_refused(house: House) -> None:
    root, eve = await house.person(ROOT, operator=True), await observer(house)
    changing = [route for route in PAGES if route.method != "GET" and route.need not in OWN]
    assert len(changing) > 60
    before = await house.store.audit.lines(None, limit=500)
    for route in changing:
        answer = await eve.post(filled(route.path))
        assert (answer.status, "read-only operator" in answer.body) == (403, True), route.path
    assert await house.store.audit.lines(None, limit=500) == before
    assert (await root.post(f"{OPERATOR}/queues/pause", paused="yes")).status == 303  # the token is no reason


async def test_every_page_but_those_of_a_form_is_open(house: House) -> None:
    root, eve = await house.person(ROOT, operator=True), await observer(house)
    for route in PAGES:
        path = filled(route.path)
        if route.method != "GET" or route.need in OWN or path.endswith("/live"):
            continue
        seen, wanted = await eve.get(path), await root.get(path)
        assert seen.status == (403 if route.form else wanted.status), path
    assert "team_b" in (await eve.get("/dashboard")).body
    assert f'href="{OPERATOR}"' in (await eve.get("/dashboard")).body


async def test_no_page_offers_what_is_refused(house: House) -> None:
    """Neither a form nor a link; and nobody else's role finds a link that leads to a refusal."""
    root, eve = await house.person(ROOT, operator=True), await observer(house)
    await furnish(house, root)
    seen = await walk(eve)
    assert len(seen) > 45
    offering = {path for path, page in seen.items() if 'method="post"' in page.partition("<main")[2]}
    assert {path for path in offering if not path.startswith("/dashboard/account")} == set()
    assert "/dashboard/account" in offering
    for role in ("viewer", "developer", "owner"):
        await walk(await house.person(f"{role}@example.com", team_a=role))


async def furnish(house: House, root: Browser) -> None:
    """Something on every list."""
    await house.send_mail()
    forms: dict[str, dict[str, str]] = {
        f"{A}/keys": {"name": "server", "send": "yes"},
        f"{A}/webhooks": {"url": "https://a.test/hook", "all": "yes"},
        f"{A}/suppressions": {"email": "gone@example.com", "reason": "manual"},
        f"{A}/senders/domains": {"domain": "shop.test", "brand": "Shop"},
        f"{A}/templates/new": {"channel": "email", "name": "hello", "subject": "Hi", "text": "Hi", "html": ""},
        f"{OPERATOR}/queues/pause": {"paused": "yes"},
    }
    for path, form in forms.items():
        assert (await root.post(path, **form)).status in (200, 303), path


async def walk(browser: Browser) -> dict[str, str]:
    """Every page that links lead to, by its path."""
    found: dict[str, str] = {}
    waiting = ["/dashboard"]
    while waiting:
        path = waiting.pop()
        if path in found or path.endswith("/live"):
            continue
        answer = await browser.get(path)
        assert answer.status in (200, 303, 404), path
        found[path] = answer.body
        waiting += [unescape(place) for place in re.findall(r'href="(/dashboard[^"#?]*)', answer.body)]
    return found


async def test_in_a_team_of_their_own_they_have_their_role(house: House) -> None:
    await house.person(ROOT, operator=True)
    made = await house.offer(EVE, **{"": READ_ONLY, "team_a": "owner"})
    eve = house.browser()
    assert (await eve.post(f"/dashboard/link/{made.token}", password=PASSWORD)).status == 303
    assert 'method="post"' in (await eve.get(f"{A}/settings")).body.partition("<main")[2]
    assert (await eve.post(f"{A}/team", email="new@example.com", role="viewer")).status == 200
    assert (await eve.post(f"{OPERATOR}/teams/team_a/suspend", suspended="yes")).status == 403


async def test_from_one_role_to_the_other(house: House) -> None:
    root, eve = await house.person(ROOT, operator=True), await observer(house)
    id_ = await house.id_of(EVE)
    page = f"{OPERATOR}/people/{id_}"
    assert "Read-only" in (await root.get(page)).body
    more = await root.post(f"{page}/operator", operator="yes")
    assert (await eve.get(f"{OPERATOR}/people/new")).status == 403  # not accepted yet
    assert (await eve.post(f"{OPERATOR}/queues/pause", paused="yes")).status == 403
    assert (await eve.post(more.link)).status == 303
    assert (await eve.post(f"{OPERATOR}/queues/pause", paused="yes")).status == 303
    assert (await root.post(f"{page}/operator", operator="read-only")).status == 303  # at once
    assert (await eve.post(f"{OPERATOR}/queues/pause")).status == 403
    assert (await root.post(f"{page}/operator")).status == 303
    assert not await eve.sees(OPERATOR)
    actions = [(line.action, line.detail) for line in await house.store.audit.lines(None)][::-1]
    assert [one for one in actions if one[0] == "person.operator"] == [
        ("person.operator", "yes"),
        ("person.operator", "read-only"),
        ("person.operator", "no"),
    ]


async def test_the_last_operator_stays_one(house: House) -> None:
    root = await house.person(ROOT, operator=True)
    await observer(house)  # counts for nothing
    page = f"{OPERATOR}/people/{await house.id_of(ROOT)}"
    for form in ({"operator": "read-only"}, {}):
        refused = await root.post(f"{page}/operator", **form)
        assert (refused.status, "keeps an operator" in refused.body) == (400, True)


async def test_an_owner_cannot_become_one_by_a_members_link(house: House) -> None:
    """Whoever sets the password has all that the account may see."""
    await house.person(ROOT, operator=True)
    owner = await house.person("owner@example.com", team_a="owner")
    made = await house.offer(EVE, **{"": READ_ONLY, "team_a": "viewer"})
    assert (await house.browser().post(f"/dashboard/link/{made.token}", password=PASSWORD)).status == 303
    refused = await owner.post(f"{A}/team/{await house.id_of(EVE)}/link")
    assert "ask%20an%20operator" in refused.headers["set-cookie"] and refused.link == ""


async def test_a_group_makes_and_ends_it(house: House) -> None:
    """From one role to the other at once, as an identity provider says; the last operator stays."""
    eve = Identity(issuer="https://id.test", subject="1", email=EVE, name="Eve")
    for given, held in ((READ_ONLY, READ_ONLY), (None, ""), ("operator", "operator"), (READ_ONLY, "operator")):
        await admit(house.store, "192.0.2.1", eve, {"": given, "team_a": "viewer"}, "Example ID")
        person = await house.people.find(EVE)
        assert person and person.instance_role == held
    await house.person(ROOT, operator=True)
    await admit(house.store, "192.0.2.1", eve, {"": READ_ONLY}, "Example ID")
    person = await house.people.find(EVE)
    assert person and person.instance_role == READ_ONLY
