"""Portals: a platform key's link opens some pages of one team, once, for an hour, and nothing else."""

import asyncio
import json
from typing import Any

import pytest

from heliograph.dashboard.page_request import PORTAL_COOKIE, SESSION_COOKIE
from heliograph.dashboard.pages import PAGES
from heliograph.dashboard.portal import PATH_BY_PAGE
from heliograph.domain.accounts.portal import LINK_LIFETIME_MS, PORTAL_PAGES, SESSION_LIFETIME_MS
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.limits import MINUTE_MS
from heliograph.manage import keys, platform, teams
from heliograph.manage.keys import CreatedKey, NewKey
from heliograph.storage.audit import NEWEST, AuditFilter
from heliograph.storage.people import hash_token
from heliograph.storage.store import Store
from tests.accounts.house import BASE, Browser, Instance, Response
from tests.clocks import TestClock
from tests.make_request import body_of, make_request

pytestmark = pytest.mark.anyio

RETURN_URL = "https://app.example.com/settings?tab=mail#hooks"
A, B = "/dashboard/portal/teams/team_a", "/dashboard/portal/teams/team_b"
LINK = "/dashboard/portal/open/"


class Visitor(Browser):
    """Browser of a visitor of a portal, which sends all of its cookies everywhere."""

    async def submit(self, path: str, **form: str) -> Response:
        portal = await self.house.store.portals.find_session(self.cookies.get(PORTAL_COOKIE, ""))
        return await self._ask("POST", path, {"csrf": portal.csrf if portal else ""} | form)

    async def send(self, method: str, path: str, **form: str) -> Response:
        return await self._ask(method, path, form)


@pytest.fixture
async def key(house: Instance) -> CreatedKey:
    return await keys.create(house.store, COMMAND_LINE, NewKey(team="", scopes=("operate",), name="crm"))


async def ask_api(house: Instance, key: CreatedKey, path: str, body: Any) -> tuple[int, Any]:
    headers = {"authorization": f"Bearer {key.token}", "content-type": "application/json"}
    answer = await house.front(make_request("POST", path, headers, json.dumps(body).encode()))
    return answer.status, json.loads(await body_of(answer))


async def make_link(house: Instance, key: CreatedKey, *pages: str, team: str = "team_a", **more: str) -> str:
    """Return the path of a new link."""
    body = {"pages": pages or PORTAL_PAGES} | more
    status, link = await ask_api(house, key, f"/v1/teams/{team}/portal", body)
    assert status == 201, link
    assert link["url"].startswith(BASE + LINK)
    return str(link["url"].removeprefix(BASE))


async def enter(house: Instance, key: CreatedKey, *pages: str, **more: str) -> Visitor:
    visitor = Visitor(house, "192.0.2.7")
    opened = await visitor.send("POST", await make_link(house, key, *pages, **more))
    assert opened.status == 303
    return visitor


async def audit_of(store: Store) -> list[tuple[str, str, str | None, str]]:
    rows = (await store.audit.list_page(None, AuditFilter(), NEWEST, 10)).rows
    return [(row.action, row.actor_name, row.team, row.address) for row in rows]


async def test_link_opens_the_permitted_pages_of_one_team(house: Instance, key: CreatedKey) -> None:
    link = await make_link(house, key, "events", "webhooks", return_url=RETURN_URL)
    visitor = Visitor(house, "192.0.2.7")
    shown = await visitor.get(link)
    assert (shown.status, visitor.cookies) == (200, {})
    assert "The team_a" in shown.body
    opened = await visitor.send("POST", link)
    assert (opened.status, opened.location) == (303, f"{A}/events")
    page = await visitor.get(f"{A}/webhooks")
    assert page.status == 200
    assert f'href="{RETURN_URL}" target="_top"' in page.body
    assert [path in page.body for path in (f"{A}/events", f"{A}/keys", f"{A}/senders", "/search")] == [
        *(True, False, False, False)
    ]
    assert '"/dashboard"' not in page.body
    created = await visitor.submit(f"{A}/webhooks", url="https://hooks.example.com/in", all="yes", events="*")
    assert created.status in (200, 303), created.body
    assert [hook.url for hook in house.store.setup.current.teams["team_a"].webhooks] == ["https://hooks.example.com/in"]
    who = f"key {key.key.id}"
    assert [entry for entry in await audit_of(house.store) if entry[1] == who] == [
        ("webhook.create", who, "team_a", "192.0.2.7"),
        ("portal.open", who, "team_a", "192.0.2.7"),
        ("portal.link", who, "team_a", "127.0.0.1"),
    ]


async def test_every_other_page_and_team_is_not_found(house: Instance, key: CreatedKey) -> None:
    visitor = await enter(house, key)
    for route in PAGES:
        path = route.path.replace("{team}", "team_a")
        permitted = path.startswith(tuple(f"/dashboard/teams/team_a{prefix}" for prefix in PATH_BY_PAGE.values()))
        for own in {path, path.replace("/dashboard/teams/", "/dashboard/portal/teams/")}:
            if permitted or (route.required_role == "anyone" and own == path):
                continue
            answer = await visitor.send(route.method, own.replace("{", "").replace("}", ""), csrf="x")
            assert answer.status in (403, 404), (route.method, own, answer.status)
    for page in PATH_BY_PAGE.values():
        assert (await visitor.get(A + page)).status == 200
        assert (await visitor.get(B + page)).status == 404
        assert (await visitor.submit(B + page)).status == 404
        assert (await visitor.get(f"/dashboard/teams/team_b{page}")).status == 404
        redirect = await visitor.get(f"/dashboard/teams/team_a{page}")
        assert (redirect.status, redirect.location) == (303, A + page)
    assert (await visitor.submit(f"{A}/senders/decide", kind="domain", id="dom_1")).status == 403
    for outside in (f"{A}/webhooks/../billing", f"{A}/webhooks%2F..%2Fbilling", f"{A}/live?of=messages"):
        assert (await visitor.get(outside)).status == 404
    assert (await visitor.get("/dashboard/operator")).status == 404


async def test_portal_without_a_page_has_neither_the_page_nor_its_stream(house: Instance, key: CreatedKey) -> None:
    visitor = await enter(house, key, "webhooks")
    for path in ("/events", "/keys", "/senders", "/keys/new", "/live?of=events"):
        assert (await visitor.get(A + path)).status == 404
    assert (await visitor.submit(f"{A}/keys", name="server", send="yes")).status == 404
    assert (await (await enter(house, key, "events")).get(f"{A}/live?of=messages")).status == 404
    assert keys.keys_of(house.store.setup.current, "team_a") == []


async def test_object_of_another_team_is_not_found(house: Instance, key: CreatedKey) -> None:
    other = await keys.create(house.store, COMMAND_LINE, NewKey(team="team_b", name="server"))
    visitor = await enter(house, key)
    assert (await visitor.get(f"{A}/keys/{other.key.id}")).status == 404
    for action in ("revoke", "rotate"):
        assert (await visitor.submit(f"{A}/keys/{other.key.id}/{action}")).status == 404
    assert (await visitor.submit(f"{A}/keys/{key.key.id}/revoke")).status == 404
    assert not house.store.setup.current.callers[key.key.id].key.revoked


async def test_link_is_valid_once_even_in_parallel(house: Instance, key: CreatedKey) -> None:
    link = await make_link(house, key)
    visitors = [Visitor(house, "192.0.2.7") for _ in range(5)]
    for visitor in visitors:  # as mail scanners do
        assert (await visitor.get(link)).status == 200
        assert (await visitor.send("HEAD", link)).status == 200
    opened = await asyncio.gather(*(visitor.send("POST", link) for visitor in visitors))
    assert sorted(answer.status for answer in opened) == [303, 404, 404, 404, 404]
    assert [len(visitor.cookies) for visitor in visitors].count(1) == 1
    assert (await visitors[0].get(link)).status == 404


async def test_link_expires_after_ten_minutes_and_session_after_an_hour(
    house: Instance, key: CreatedKey, clock: TestClock
) -> None:
    link = await make_link(house, key)
    clock.forward(LINK_LIFETIME_MS)
    assert (await Visitor(house, "192.0.2.7").send("POST", link)).status == 404
    visitor = await enter(house, key)
    clock.forward(SESSION_LIFETIME_MS - MINUTE_MS)
    assert (await visitor.get(f"{A}/events")).status == 200
    clock.forward(MINUTE_MS)
    ended = await visitor.get(f"{A}/events")
    assert ended.status == 403
    assert "session has ended" in ended.body
    assert "sign-in" not in ended.body


@pytest.mark.parametrize("event", ["revoke", "suspend", "delete", "expire"])
async def test_session_and_link_end_with_the_key_and_the_team(
    house: Instance, key: CreatedKey, clock: TestClock, event: str
) -> None:
    expires_at = clock.now() + 60_000
    if event == "expire":
        key = await keys.create(
            house.store, COMMAND_LINE, NewKey(team="", scopes=("operate",), expires_at=expires_at, name="short")
        )
    visitor, link = await enter(house, key), await make_link(house, key)
    if event == "revoke":
        await keys.revoke(house.store, COMMAND_LINE, key.key.id)
    elif event == "suspend":
        await teams.set_suspended(house.store, COMMAND_LINE, "team_a", True)
    elif event == "delete":
        await teams.request_deletion(house.store, COMMAND_LINE, "team_a")
    clock.forward(60_000)
    for _ in range(2):
        assert (await visitor.get(f"{A}/webhooks")).status == 403
        assert (await visitor.submit(f"{A}/webhooks", url="https://hooks.example.com/in")).status == 403
        assert (await visitor.get(link)).status == 404
        assert (await visitor.send("POST", link)).status == 404
        if event == "suspend":  # lifting the suspension does not bring them back
            await teams.set_suspended(house.store, COMMAND_LINE, "team_a", False)
        if event == "delete":
            await teams.restore(house.store, COMMAND_LINE, "team_a")


async def test_portal_and_dashboard_sessions_of_a_browser_do_not_mix(house: Instance, key: CreatedKey) -> None:
    operator = await house.person("op@example.com", operator=True)
    session = operator.cookies[SESSION_COOKIE]
    visitor = await enter(house, key, "webhooks")
    visitor.cookies |= operator.cookies
    assert (await visitor.get(f"{A}/webhooks")).status == 200
    assert (await visitor.get(f"{A}/billing")).status == 404
    assert (await visitor.get(f"{B}/webhooks")).status == 404
    assert "op@example.com" not in (await visitor.get(f"{A}/webhooks")).body
    assert (await visitor.get("/dashboard/teams/team_b/billing")).status == 200
    assert (await visitor.get("/dashboard/teams/team_a/webhooks")).status == 200
    assert visitor.cookies[SESSION_COOKIE] == session
    del visitor.cookies[PORTAL_COOKIE]
    assert (await visitor.get(f"{A}/webhooks")).status == 403  # the operator's session opens no portal


async def test_portal_link_cannot_fix_the_session_of_a_visitor(house: Instance, key: CreatedKey) -> None:
    link = await make_link(house, key)
    token = link.removeprefix(LINK)
    visitor = Visitor(house, "192.0.2.7")
    visitor.cookies[PORTAL_COOKIE] = token
    assert (await visitor.get(f"{A}/webhooks")).status == 403  # the link's token is no session
    await visitor.send("POST", link)
    session = visitor.cookies[PORTAL_COOKIE]
    assert session != token
    assert (await visitor.send("POST", LINK + session)).status == 404  # nor is a session's token a link
    for secret in (token, session):
        rows = await house.store.database.read(lambda tx: tx.run("find_portal", hash=secret, now=0))  # noqa: B023
        assert rows == []
    assert await house.store.database.read(lambda tx: tx.run("find_portal", hash=hash_token(session), now=0))


async def test_form_without_the_token_of_the_portal_is_refused(house: Instance, key: CreatedKey) -> None:
    visitor = await enter(house, key)
    for csrf in ("", "guess"):
        assert (await visitor.send("POST", f"{A}/keys", name="x", send="yes", csrf=csrf)).status == 403
    answer = await house.front(
        make_request("POST", await make_link(house, key), {"origin": "https://evil.test", "host": "mail.example.com"})
    )
    assert answer.status == 403


async def test_portal_creates_a_key_of_the_team_as_the_platform_key(house: Instance, key: CreatedKey) -> None:
    visitor = await enter(house, key, "keys")
    created = await visitor.submit(f"{A}/keys", name="server", send="yes")
    assert created.status == 200, created.body
    assert "/start" not in created.body
    (made,) = keys.keys_of(house.store.setup.current, "team_a")
    assert made.name == "server"
    restrictions = f"{A}/keys/{made.id}/restrictions"  # only people and operators change what a key may do
    assert (await visitor.get(restrictions)).status == (await visitor.submit(restrictions, per_day="")).status == 404


@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://app.example.com/",
            "javascript:alert(1)",
            "//evil.test",
            "/settings",
            "ftp://a.test/",
            "https://",
            "",
        ),
        *(
            "https://user@a.test/",
            "https://a.test/\r\nX: y",
            'https://a.test/"onclick=',
            "https://a.test/#\n",
            "data:,a",
        ),
    ],
)
async def test_return_url_other_than_https_is_refused(house: Instance, key: CreatedKey, url: str) -> None:
    status, body = await ask_api(house, key, "/v1/teams/team_a/portal", {"pages": ["keys"], "return_url": url})
    assert (status, body["error"]["code"], body["error"]["param"]) == (400, "invalid_request", "return_url")


@pytest.mark.parametrize("url", ["http://localhost:3000/a", "http://127.0.0.1/", "http://[::1]:8080/", None])
async def test_return_url_of_this_machine_may_be_http(house: Instance, key: CreatedKey, url: str | None) -> None:
    status, _ = await ask_api(house, key, "/v1/teams/team_a/portal", {"pages": ["keys"], "return_url": url})
    assert status == 201


async def test_link_needs_known_pages_and_an_active_team(house: Instance, key: CreatedKey) -> None:
    for pages in ([], ["billing"], "keys", None, [1]):
        status, body = await ask_api(house, key, "/v1/teams/team_a/portal", {"pages": pages})
        assert (status, body["error"]["param"]) == (400, "pages")
    status, body = await ask_api(house, key, "/v1/teams/team_c/portal", {"pages": ["keys"]})
    assert (status, body["error"]["code"]) == (404, "team_not_found")
    await teams.set_suspended(house.store, COMMAND_LINE, "team_a", True)
    status, body = await ask_api(house, key, "/v1/teams/team_a/portal", {"pages": ["keys"]})
    assert (status, body["error"]["code"]) == (403, "team_suspended")


async def test_only_portal_pages_may_be_framed_and_only_by_the_portal_origins(house: Instance, key: CreatedKey) -> None:
    visitor, link = await enter(house, key), await make_link(house, key)

    async def policy(path: str) -> str:
        return (await visitor.get(path)).headers["content-security-policy"].partition("frame-ancestors ")[2]

    assert [await policy(path) for path in (link, f"{A}/keys", f"{A}/billing")] == ["'none'"] * 3
    origins = ["https://app.example.com", "https://shop.example.com:8443"]
    await platform.change_platform(house.store, COMMAND_LINE, {"portal_origins": origins})
    for path in (link, f"{A}/keys", f"{A}/billing"):
        assert await policy(path) == " ".join(origins)
    for path in ("/dashboard/sign-in", "/dashboard", "/dashboard/teams/team_a", "/dashboard/teams/team_a/keys"):
        assert await policy(path) == "'none'"
    operator = await house.person("op@example.com", operator=True)
    page = await operator.get("/dashboard/teams/team_a/keys")
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]


async def test_cookie_of_a_framed_portal_is_partitioned(house: Instance, key: CreatedKey) -> None:
    opened = await Visitor(house, "192.0.2.7").send("POST", await make_link(house, key))
    cookie = opened.headers["set-cookie"]
    assert cookie.startswith(f"{PORTAL_COOKIE}=")
    assert cookie.endswith("; Max-Age=3600; Path=/dashboard; HttpOnly; SameSite=Lax; Secure")
    await platform.change_platform(house.store, COMMAND_LINE, {"portal_origins": ["https://app.example.com"]})
    opened = await Visitor(house, "192.0.2.7").send("POST", await make_link(house, key))
    assert opened.headers["set-cookie"].endswith("; HttpOnly; SameSite=None; Secure; Partitioned")
    operator = await house.person("op@example.com", operator=True)
    signed_in = await operator.sign_in("op@example.com")
    assert "SameSite=Lax" in signed_in.headers["set-cookie"]
