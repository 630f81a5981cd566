"""The compatibility page of a key: its calls to other services' APIs, their results, and what to change."""

from typing import Any

import pytest

from heliograph.compat.adapters import ADAPTERS
from heliograph.domain.operations.request_log import client_name, unknown_path
from heliograph.domain.setup.records import Key, TeamRecord
from heliograph.storage.requests import LoggedRequest
from heliograph.storage.store import Store
from heliograph.texts.compat_differences import DIFFERENCES
from tests.clocks import TestClock
from tests.dashboard.inside import Pages, write_records
from tests.storage.test_idempotency import make_context

TEAM, KEY = "team_a", "aaaaaaaaaa"
HERE = f"/dashboard/teams/{TEAM}/keys/{KEY}/compatibility"
NODE, REASON = "resend-node:6.22.0", "Public message links are not supported."


@pytest.fixture
async def pages(store: Store, clock: TestClock) -> Pages:
    await write_records(
        store,
        ("team", TEAM, TeamRecord(ref=1, id=TEAM, name="Acme"), TEAM),
        ("key", KEY, Key(id=KEY, team=TEAM, name="Shop", hash="x"), TEAM),
    )
    return Pages(make_context(store, clock))


def logged(clock: TestClock, route: str, status: int = 200, **more: Any) -> LoggedRequest:
    clock.forward(10)
    fields: dict[str, Any] = {"key": KEY, "client": NODE, "refused": int(status >= 400)} | more
    return LoggedRequest(id=clock.new_id("req_"), team=1, at=clock.now(), route=route, status=status, **fields)


@pytest.mark.anyio
@pytest.mark.both_databases
async def test_compatibility_page_lists_calls_with_their_result(store: Store, pages: Pages, clock: TestClock) -> None:
    assert "No calls through another service" in (await pages.get(HERE)).text
    await store.requests.insert(
        [
            logged(clock, "POST /compat/resend/emails"),
            logged(clock, "POST /compat/resend/emails"),
            logged(
                clock, "POST /compat/resend/emails", 403, code="from_domain_unverified", message="<b>Verify</b> it."
            ),
            logged(clock, "POST /compat/resend/webhooks", client="resend-python:2.39.0"),
            logged(clock, "POST /compat/resend/emails/{id}/share", 404, code="not_found", message=REASON),
            logged(clock, "POST /compat/resend/domains", key="another"),
            logged(clock, "POST /v1/emails"),
        ]
    )
    shown = await pages.get(HERE)
    assert "66% of the calls work 2 of 3 different calls work, 1 of them with differences. 1 is refused." in shown.text
    assert f"POST /emails/{{id}}/share Resend Refused 1 refused {REASON} {NODE}" in shown.text
    assert "POST /webhooks Resend Differs 1 accepted Opens and clicks are never sent" in shown.text
    assert "POST /emails Resend Works 2 accepted, 1 refused" in shown.text
    assert "&lt;b&gt;Verify" in shown.html and "/v1/emails" not in shown.text and "/domains" not in shown.text
    assert shown.text.index("/share") < shown.text.index("Differs") < shown.text.index("2 accepted, 1 refused")


@pytest.mark.anyio
async def test_compatibility_page_needs_a_developer_and_a_key_of_the_team(pages: Pages) -> None:
    assert (await pages.get(HERE, "viewer")).status == 403
    assert (await pages.get(HERE.replace(KEY, "bbbbbbbbbb"))).status == 404
    assert HERE in (await pages.get(HERE.removesuffix("/compatibility"))).html


def test_differences_name_existing_routes() -> None:
    routes = {route.name for adapter in ADAPTERS for route in adapter.routes}
    assert DIFFERENCES.keys() - routes == set()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/compat/resend/contacts/ada@example.com", "/compat/resend/contacts/{id}"),
        ("/compat/postmark/message-streams/outbound/x9", "/compat/postmark/message-streams/outbound/{id}"),
        (
            "/compat/twilio/2010-04-01/Accounts/AC00112233/Calls.json",
            "/compat/twilio/2010-04-01/Accounts/{id}/Calls.json",
        ),
        ("/compat/resend/contacts/Jane-Doe", "/compat/resend/contacts/{id}"),
        ("/compat/twilio/v2/" + "a" * 40, "/compat/twilio/v2/{id}"),
        ("/compat" + "/a" * 50, "/compat" + "/a" * 7),
    ],
)
def test_unknown_path_has_only_words(path: str, expected: str) -> None:
    assert unknown_path(path) == expected


def test_client_name_is_short_and_printable() -> None:
    assert client_name(b"shop (ada@example.com) 1.0") == "shop (…) 1.0"
    assert client_name(b"resend-node:6.22.0\x00\x1b[31m\xe9" + b"x" * 500) == "resend-node:6.22.0[31mé" + "x" * 95
