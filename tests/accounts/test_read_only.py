"""A read-only operator can open every operator page and submit no form; checked for every route."""

import re
from html import unescape

import pytest

from heliograph.dashboard.pages import PAGES
from heliograph.domain.accounts.idp_groups import READ_ONLY
from heliograph.manage.people import sign_in_by_provider
from heliograph.storage.people import Identity
from tests.accounts.house import PASSWORD, Browser, Instance

pytestmark = pytest.mark.anyio

OPERATOR, A = "/dashboard/operator", "/dashboard/teams/team_a"
EVE, ROOT = "eve@example.com", "root@example.com"
OWN = ("anyone", "person")  # public pages, and pages of the user's account


async def observer(house: Instance) -> Browser:
    invitation = await house.invite(EVE, **{"": READ_ONLY})
    browser = house.browser()
    assert (await browser.post(f"/dashboard/link/{invitation.token}", password=PASSWORD)).status == 303
    return browser


def fill_path_params(path: str) -> str:
    return re.sub(r"\{\w+\}", "x1", path.replace("{team}", "team_a"))


async def test_read_only_operator_cannot_submit_forms(house: Instance) -> None:
    root, eve = await house.person(ROOT, operator=True), await observer(house)
    changing = [route for route in PAGES if route.method != "GET" and route.required_role not in OWN]
    assert len(changing) > 60
    before = await house.store.audit.list_rows(None, limit=500)
    for route in changing:
        response = await eve.post(fill_path_params(route.path))
        assert (response.status, "read-only operator" in response.body) == (403, True), route.path
    assert await house.store.audit.list_rows(None, limit=500) == before
    assert (await root.post(f"{OPERATOR}/queues/pause", paused="yes")).status == 303  # not because of the CSRF token


async def test_read_only_operator_sees_every_page_except_forms(house: Instance) -> None:
    root, eve = await house.person(ROOT, operator=True), await observer(house)
    for route in PAGES:
        path = fill_path_params(route.path)
        if route.method != "GET" or route.required_role in OWN or path.endswith("/live"):
            continue
        observer_response, operator_response = await eve.get(path), await root.get(path)
        assert observer_response.status == (403 if route.is_form else operator_response.status), path
    assert "team_b" in (await eve.get("/dashboard")).body
    assert f'href="{OPERATOR}"' in (await eve.get("/dashboard")).body


async def test_pages_offer_no_refused_action_to_any_role(house: Instance) -> None:
    """No role is offered a form or link that it may not use."""
    root, eve = await house.person(ROOT, operator=True), await observer(house)
    await create_sample_data(house, root)
    pages = await crawl(eve)
    assert len(pages) > 45
    offering = {path for path, page in pages.items() if 'method="post"' in page.partition("<main")[2]}
    assert {path for path in offering if not path.startswith("/dashboard/account")} == set()
    assert "/dashboard/account" in offering
    for role in ("viewer", "developer", "owner"):
        await crawl(await house.person(f"{role}@example.com", team_a=role))


async def create_sample_data(house: Instance, root: Browser) -> None:
    """Create one object for every list."""
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


async def crawl(browser: Browser) -> dict[str, str]:
    """Follow all links and return the pages by path."""
    body_by_path: dict[str, str] = {}
    waiting = ["/dashboard"]
    while waiting:
        path = waiting.pop()
        if path in body_by_path or path.endswith("/live"):
            continue
        response = await browser.get(path)
        assert response.status in (200, 303, 404), path
        body_by_path[path] = response.body
        waiting += [unescape(target) for target in re.findall(r'href="(/dashboard[^"#?]*)', response.body)]
    return body_by_path


async def test_read_only_operator_keeps_role_in_own_team(house: Instance) -> None:
    await house.person(ROOT, operator=True)
    invitation = await house.invite(EVE, **{"": READ_ONLY, "team_a": "owner"})
    eve = house.browser()
    assert (await eve.post(f"/dashboard/link/{invitation.token}", password=PASSWORD)).status == 303
    assert 'method="post"' in (await eve.get(f"{A}/settings")).body.partition("<main")[2]
    assert (await eve.post(f"{A}/team", email="new@example.com", role="viewer")).status == 200
    assert (await eve.post(f"{OPERATOR}/teams/team_a/suspend", suspended="yes")).status == 403


async def test_operator_switches_to_read_only_and_back(house: Instance) -> None:
    root, eve = await house.person(ROOT, operator=True), await observer(house)
    id_ = await house.id_of(EVE)
    page = f"{OPERATOR}/people/{id_}"
    assert "Read-only" in (await root.get(page)).body
    more = await root.post(f"{page}/operator", operator="yes")
    assert (await eve.get(f"{OPERATOR}/people/new")).status == 403  # the invitation is not accepted yet
    assert (await eve.post(f"{OPERATOR}/queues/pause", paused="yes")).status == 403
    assert (await eve.post(more.link)).status == 303
    assert (await eve.post(f"{OPERATOR}/queues/pause", paused="yes")).status == 303
    assert (await root.post(f"{page}/operator", operator="read-only")).status == 303  # at once
    assert (await eve.post(f"{OPERATOR}/queues/pause")).status == 403
    assert (await root.post(f"{page}/operator")).status == 303
    assert not await eve.can_see(OPERATOR)
    actions = [(line.action, line.detail) for line in await house.store.audit.list_rows(None)][::-1]
    assert [item for item in actions if item[0] == "person.operator"] == [
        ("person.operator", "yes"),
        ("person.operator", "read-only"),
        ("person.operator", "no"),
    ]


async def test_last_operator_cannot_become_read_only(house: Instance) -> None:
    root = await house.person(ROOT, operator=True)
    await observer(house)  # the value is ignored
    page = f"{OPERATOR}/people/{await house.id_of(ROOT)}"
    for form in ({"operator": "read-only"}, {}):
        refused = await root.post(f"{page}/operator", **form)
        assert (refused.status, "needs an operator" in refused.body) == (400, True)


async def test_owner_gets_no_link_to_read_only_operator_account(house: Instance) -> None:
    """Whoever sets the password can see everything that the account may see."""
    await house.person(ROOT, operator=True)
    owner = await house.person("owner@example.com", team_a="owner")
    invitation = await house.invite(EVE, **{"": READ_ONLY, "team_a": "viewer"})
    assert (await house.browser().post(f"/dashboard/link/{invitation.token}", password=PASSWORD)).status == 303
    refused = await owner.post(f"{A}/team/{await house.id_of(EVE)}/link")
    assert "Ask%20an%20operator" in refused.headers["set-cookie"] and refused.link == ""


async def test_provider_group_sets_and_removes_read_only_role(house: Instance) -> None:
    """Provider groups switch the role immediately, except for the last operator."""
    eve = Identity(issuer="https://id.test", subject="1", email=EVE, name="Eve")
    for given, held in ((READ_ONLY, READ_ONLY), (None, ""), ("operator", "operator"), (READ_ONLY, "operator")):
        await sign_in_by_provider(house.store, "192.0.2.1", eve, {"": given, "team_a": "viewer"}, "Example ID")
        person = await house.people.find(EVE)
        assert person and person.instance_role == held
    await house.person(ROOT, operator=True)
    await sign_in_by_provider(house.store, "192.0.2.1", eve, {"": READ_ONLY}, "Example ID")
    person = await house.people.find(EVE)
    assert person and person.instance_role == READ_ONLY
