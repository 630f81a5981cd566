"""A change acknowledged by one process is known to the next request in another; unknown keys cost little."""

import asyncio
import base64
from typing import Any

import msgspec
import pytest

from heliograph.accept.admission import Admission
from heliograph.accept.rate import RateLimits
from heliograph.api.app import TOO_MANY_CHANGES, Api
from heliograph.compat.adapters import ADAPTERS
from heliograph.domain.limits import SECOND_MS
from heliograph.domain.refusals import SETUP_DEPENDENT_REFUSALS, InvalidApiKey
from heliograph.domain.setup.keys import make_token, parse_token, token_hash
from heliograph.domain.setup.records import (
    DisplayName,
    Domain,
    Key,
    Recipient,
    SetupRecord,
    TeamRecord,
    Template,
    Webhook,
)
from heliograph.domain.setup.snapshot import Setup
from heliograph.runtime.fair_limiter import FairLimiter
from heliograph.storage.store import Store
from heliograph.web.budget import ByteBudget
from heliograph.webhooks.policy import signature
from tests.clocks import TestClock
from tests.dashboard.inside import Pages, write_records
from tests.make_request import make_request
from tests.storage.test_idempotency import make_context, make_management

pytestmark = pytest.mark.anyio

TOKEN, SANDBOX, NEW = (make_token(bytes([n]) * 64) for n in range(1, 4))
MAIL = {"to": "delivered@simulator.test", "subject": "S", "text": "T", "from": "a@a.test"}
PHONE = {"to": "+15005550006", "template_id": "tpl_new"}


def key(token: str, team: str = "team_a") -> tuple[str, str, SetupRecord, str]:
    id_ = parse_token(token) or ""
    record = Key(id=id_, team=team, name=id_, hash=token_hash(token), scopes=("send", "manage"))
    return ("key", id_, record, team)


def domain(name: str) -> tuple[str, str, SetupRecord, str]:
    record = Domain(id=f"dom_{name[0]}", team="team_a", name=name, brand="A", verified=True, approved=True)
    return ("domain", record.id, record, "team_a")


def template(channel: Any, **parts: Any) -> tuple[str, str, SetupRecord, str]:
    return ("template", "tpl_new", Template(id="tpl_new", team="team_a", channel=channel, name="N", **parts), "team_a")


DISPLAYED = DisplayName(id="dn_new", team="team_a", domain="dom_a", name="Alerts", approved=True)
NAME = ("display_name", "dn_new", DISPLAYED, "team_a")
HOOK = ("webhook", "whk_new", Webhook(id="whk_new", team="team_a", url="https://h.test", secret=""), "team_a")
FRIEND = ("recipient", "team_s/me", Recipient(team="team_s", address="me@example.com"), "team_s")

CASES: dict[str, tuple[Any, str, str, str, dict[str, Any] | None, int]] = {
    "key": (key(NEW), NEW, "GET", "/v1/me", None, 200),
    "key of a sender": (key(NEW), NEW, "POST", "/v1/emails", MAIL, 202),
    "webhook": (HOOK, TOKEN, "GET", "/v1/webhooks/whk_new", None, 200),
    "webhook, changed": (HOOK, TOKEN, "PATCH", "/v1/webhooks/whk_new", {"description": "d"}, 200),
    "webhook, deliveries": (HOOK, TOKEN, "GET", "/v1/webhooks/whk_new/deliveries", None, 200),
    "webhook, Resend": (HOOK, TOKEN, "GET", "/compat/resend/webhooks/whk_new", None, 200),
    "email template": (
        template("email", subject="S", text="T"),
        *(TOKEN, "POST", "/v1/emails", {**MAIL, "subject": None, "text": None, "template_id": "tpl_new"}, 202),
    ),
    "sms template": (template("sms", body="B"), TOKEN, "POST", "/v1/sms", PHONE, 202),
    "sms template, rendered": (
        template("sms", body="B"),
        *(TOKEN, "POST", "/v1/templates/tpl_new/render", {}, 200),
    ),
    "domain": (domain("b.test"), TOKEN, "POST", "/v1/emails", MAIL | {"from": "a@b.test"}, 202),
    "domain, read": (domain("b.test"), TOKEN, "GET", "/v1/domains/dom_b", None, 200),
    "display name": (NAME, TOKEN, "POST", "/v1/emails", MAIL | {"from": "Alerts <a@a.test>"}, 202),
    "display name by id": (NAME, TOKEN, "POST", "/v1/emails", MAIL | {"from_display_id": "dn_new"}, 202),
    "recipient": (
        FRIEND,
        *(SANDBOX, "POST", "/v1/emails", {"to": "me@example.com", "subject": "S", "text": "T"}, 202),
    ),
}


@pytest.fixture
async def other_api(store: Store, other: Store, clock: TestClock) -> Api:
    """Return the API of another process, which knows two teams with a key each, and reloads to see changes."""
    await write_records(
        store,
        ("team", "team_a", TeamRecord(ref=1, id="team_a", name="A", mode="live", rate_limit=0), "team_a"),
        ("team", "team_s", TeamRecord(ref=2, id="team_s", name="S", mode="sandbox", rate_limit=0), "team_s"),
        key(TOKEN),
        key(SANDBOX, "team_s"),
        domain("a.test"),
    )
    await other.setup.refresh()
    return api_of(other, clock)


def api_of(store: Store, clock: TestClock) -> Api:
    context = msgspec.structs.replace(make_context(store, clock), decrypt=lambda text, _: text.encode())
    return Api(context, make_management(context), Admission(context, RateLimits()), ByteBudget(), ADAPTERS)


async def send_request(api: Api, token: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    answer = await api(make_request(method, path, headers, b"" if body is None else msgspec.json.encode(body)))
    return answer.status, msgspec.json.decode(answer.body)


@pytest.mark.parametrize("name", CASES)
async def test_the_next_request_to_another_process_sees_the_change(store: Store, other_api: Api, name: str) -> None:
    written, token, method, path, body, status = CASES[name]
    refused, _ = await send_request(other_api, token, method, path, body)
    assert refused >= 400
    await write_records(store, written)
    answered, result = await send_request(other_api, token, method, path, body)
    assert answered == status, result


@pytest.mark.parametrize(
    ("written", "path"), [(HOOK, "/v1/webhooks"), (domain("b.test"), "/v1/domains"), (key(NEW), "/v1/keys")]
)
async def test_lists_include_records_just_created(store: Store, other_api: Api, written: Any, path: str) -> None:
    await write_records(store, written)
    _, listing = await send_request(other_api, TOKEN, "GET", path)
    assert written[1] in [item["id"] for item in listing["data"]]


async def test_a_permissive_batch_sees_the_change(store: Store, other_api: Api) -> None:
    await write_records(store, template("sms", body="B"))
    batch = {"messages": [PHONE, PHONE | {"template_id": "tpl_none"}], "mode": "permissive"}
    status, result = await send_request(other_api, TOKEN, "POST", "/v1/sms/batch", batch)
    assert (status, ["error" in item for item in result["data"]]) == (202, [False, True])


async def test_a_page_after_a_redirect_sees_the_change(
    store: Store, other: Store, other_api: Api, clock: TestClock
) -> None:
    pages = Pages(make_context(other, clock))
    path = "/dashboard/teams/team_a/webhooks/whk_new"
    assert (await pages.get(path)).status == 404
    await write_records(store, HOOK)
    assert (await pages.get(path)).status == 200


async def test_a_new_hook_key_signs_at_once(store: Store, other_api: Api, clock: TestClock) -> None:
    secret = f"whsec_{base64.b64encode(b'x' * 32).decode()}"
    body = msgspec.json.encode({"user": {"phone": "15005550006"}, "sms": {"otp": "135790"}})
    headers = signature.signature_headers([secret], "msg_1", clock.now() // SECOND_MS, body)

    async def signed() -> int:
        return (await other_api(make_request("POST", "/hooks/supabase/team_a?template=tpl_new", headers, body))).status

    assert await signed() == 401
    id_ = parse_token(NEW) or ""
    hook_key = Key(id=id_, team="team_a", name="hook", hash="", scopes=("send",), secret=secret)
    await write_records(store, ("key", id_, hook_key, "team_a"))
    assert await signed() == 200


async def test_a_resumed_team_sends_at_once(store: Store, other_api: Api, other: Store) -> None:
    record = other.setup.current.teams["team_a"].record
    await write_records(store, ("team", "team_a", msgspec.structs.replace(record, suspended=True), "team_a"))
    await other.setup.refresh()
    assert (await send_request(other_api, TOKEN, "GET", "/v1/me"))[0] == 403
    await write_records(store, ("team", "team_a", record, "team_a"))
    assert (await send_request(other_api, TOKEN, "GET", "/v1/me"))[0] == 200


@pytest.mark.parametrize(
    ("tokens", "looks"),
    [
        ([make_token(bytes([n, 9]) * 32) for n in range(200)], 2),  # well-formed, but unknown in memory
        (["hk_nobody", "", TOKEN[:-6] + "000000", "é"] * 50, 0),
    ],
)
async def test_concurrent_unknown_keys_share_one_refresh(
    other_api: Api, other: Store, monkeypatch: pytest.MonkeyPatch, tokens: list[str], looks: int
) -> None:
    refreshes: list[Setup] = []
    refresh = other.setup.refresh

    async def counted_refresh() -> Setup:
        refreshes.append(other.setup.current)
        return await refresh()

    monkeypatch.setattr(other.setup, "refresh", counted_refresh)
    answers = await asyncio.gather(*(send_request(other_api, token, "GET", "/v1/me") for token in tokens))
    assert {status for status, _ in answers} == {401}
    assert len(refreshes) <= looks


def test_key_refusals_trigger_a_setup_refresh() -> None:
    assert InvalidApiKey in SETUP_DEPENDENT_REFUSALS


async def test_setup_change_with_a_full_queue_is_503_with_retry_after(other: Store, other_api: Api) -> None:
    other.database.serialized = limiter = FairLimiter(1, waiters_max=0)
    body = msgspec.json.encode({"name": "server", "scopes": ["send"]})
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    async with limiter.slot("team_b"):
        answer = await other_api(make_request("POST", "/v1/keys", headers, body))
        assert (answer.status, dict(answer.headers)[b"retry-after"]) == (503, b"1")
        error = msgspec.json.decode(answer.body)["error"]
        assert (error["code"], error["message"]) == ("service_unavailable", TOO_MANY_CHANGES)
        assert (await send_request(other_api, TOKEN, "POST", "/v1/emails", MAIL))[0] == 202
    assert (await other_api(make_request("POST", "/v1/keys", headers, body))).status == 201
