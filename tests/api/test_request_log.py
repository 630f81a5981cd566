"""The request log has a call's result, never its contents."""

import hashlib
import json
from typing import Any

import pytest

from heliograph.accept.admission import Admission
from heliograph.accept.rate import RateLimits
from heliograph.api.app import Api
from heliograph.compat.adapters import ADAPTERS
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.setup.keys import make_token, parse_token
from heliograph.domain.setup.records import Domain, Key, TeamRecord
from heliograph.manage import platform
from heliograph.settings import Settings
from heliograph.storage.requests import LoggedRequest
from heliograph.storage.store import Store
from heliograph.web.budget import ByteBudget
from tests.clocks import TestClock
from tests.dashboard.inside import write_records
from tests.make_request import make_request
from tests.storage.conftest import asking
from tests.storage.test_idempotency import make_context, make_management

pytestmark = pytest.mark.anyio

TOKEN = make_token(bytes(range(64)))
PUBLIC = parse_token(TOKEN) or ""
BODY = b'{"to":"delivered@simulator.heliograph.test","from":"a@a.test","subject":"S","text":"secret words"}'


class Calls:
    def __init__(self, store: Store, clock: TestClock) -> None:
        self._context = make_context(store, clock)
        self._api = Api(
            self._context,
            make_management(self._context),
            Admission(self._context, RateLimits()),
            ByteBudget(),
            ADAPTERS,
        )

    async def __call__(self, method: str, path: str, body: bytes = b"", **headers: str) -> int:
        all_headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json", **headers}
        answer = await self._api(make_request(method, path, all_headers, body))
        return answer.status

    async def log(self) -> list[LoggedRequest]:
        await self._context.state.request_log.write_periodically(self._context.store.requests)
        return (await self._context.store.requests.list_page(1))[::-1]


@pytest.fixture
async def calls(store: Store, clock: TestClock) -> Calls:
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    await write_records(
        store,
        ("team", "team_a", TeamRecord(ref=1, id="team_a", name="A", mode="live", rate_limit=0), "team_a"),
        ("domain", "dom_a", Domain(id="dom_a", team="team_a", name="a.test", brand="A", verified=True, approved=True),
         "team_a"),
        ("key", PUBLIC, Key(id=PUBLIC, team="team_a", name="k", hash=digest), "team_a"),
    )  # fmt: skip
    return Calls(store, clock)


async def test_the_logged_subject_is_found_in_any_response(calls: Calls) -> None:
    to = [f"{'long.' * 12}{n}@simulator.heliograph.test" for n in range(50)]
    mail = {"to": to, "from": "a@a.test", "subject": "S", "text": "T", "tags": {"n": "1"}}
    for _ in range(2):
        assert await calls("POST", "/v1/emails", json.dumps(mail).encode(), **{"idempotency-key": "long"}) == 202
    first, replay = await calls.log()
    assert first.subject.startswith("eml_") and replay.subject == first.subject


async def test_every_call_is_logged_without_its_body(calls: Calls, settings: Settings) -> None:
    idempotency = {"idempotency-key": "one"}
    assert [
        await calls("POST", "/v1/emails", BODY, **idempotency),
        await calls("POST", "/v1/emails", BODY, **idempotency),
        await calls("POST", "/v1/emails", b"{}"),
        await calls("GET", "/v1/nothing"),
        await calls("GET", "/v1/emails"),
    ] == [202, 202, 400, 404, 200]
    first, replay, refused, lost, listing = await calls.log()
    assert (first.route, first.status, first.replayed, first.refused) == ("POST /v1/emails", 202, 0, 0)
    assert first.subject.startswith("eml_") and replay.subject == first.subject
    assert (replay.status, replay.replayed) == (202, 1)
    assert (refused.status, refused.refused, bool(refused.code)) == (400, 1, True)
    assert lost.route == "GET (no such route)"
    assert (listing.route, listing.subject) == ("GET /v1/emails", "")
    assert {entry.key for entry in (first, replay, refused, lost, listing)} == {PUBLIC}
    async with asking(settings) as sql:
        assert "secret words" not in str(await sql("SELECT * FROM request_log"))


async def test_calls_of_other_services_apis_are_logged_with_their_client(calls: Calls, settings: Settings) -> None:
    node: Any = {"user-agent": "resend-node:6.22.0"}
    assert await calls("GET", "/compat/resend/emails", **node) == 200
    assert await calls("GET", "/compat/resend/contacts/ada@example.com", **node) == 404
    assert await calls("GET", "/v1/emails", **node) == 200
    listing, lost, own = await calls.log()
    assert (listing.route, listing.client) == ("GET /compat/resend/emails", "resend-node:6.22.0")
    assert (lost.route, lost.client) == ("GET /compat/resend/contacts/{id}", "resend-node:6.22.0")
    assert lost.message.startswith("Contacts, segments, topics and broadcasts are not supported")
    assert own.client == ""
    async with asking(settings) as sql:
        assert "ada@example.com" not in str(await sql("SELECT * FROM request_log"))


async def test_successful_requests_are_logged_up_to_the_configured_rate(calls: Calls, store: Store) -> None:
    await platform.change_platform(store, COMMAND_LINE, {"log_requests_per_second": 2})
    for _ in range(5):
        assert await calls("GET", "/v1/emails") == 200
    assert await calls("POST", "/v1/emails", b"{}") == 400
    assert [entry.status for entry in await calls.log()] == [200, 200, 400]
    assert await calls("GET", "/v1/emails") == 200  # in the next second
    assert [(entry.status, entry.more) for entry in await calls.log()] == [(200, 0), (200, 0), (400, 0), (200, 3)]
    await platform.change_platform(store, COMMAND_LINE, {"log_requests_per_second": 0})
    await calls("GET", "/v1/emails")
    assert len(await calls.log()) == 4
