"""A test clock that is forty days ahead (contract 19), in one process."""

from typing import Any

import pytest

from heliograph.api import team_clock
from heliograph.api.app import Api
from heliograph.domain.audit.actor import SERVICE
from heliograph.domain.ids import parse_timestamp, timestamp
from heliograph.domain.limits import DAY_MS, SECOND_MS
from heliograph.domain.sending.pricing import month_of
from heliograph.domain.setup.records import TeamClock, TeamRecord
from heliograph.manage import imports
from heliograph.storage.accept import lock_accounts, save_accounts
from heliograph.storage.store import Store
from tests.api.test_own_writes import TOKEN, api_of, key, send_request
from tests.clocks import TestClock
from tests.dashboard.inside import Pages, write_records
from tests.storage.test_idempotency import make_context

pytestmark = pytest.mark.anyio
TEAM, TEAM_PAGE = "team_s", "/dashboard/teams/team_s"
AHEAD_MS, LATE_MS = 40 * DAY_MS, 60 * SECOND_MS
RECORD = TeamRecord(ref=1, id=TEAM, name="S", mode="sandbox", rate_limit=0, test_clock=True)
MAIL = {"to": "delivered@simulator.test", "subject": "S", "text": "T"}
TEMPLATE = {"name": "Hello", "channel": "email", "subject": "S", "text": "T", "html": "<p>T</p>"}


async def move(store: Store, ahead_ms: int, target: int | None = None) -> None:
    clock = TeamClock(team=TEAM, ahead=ahead_ms, target=ahead_ms if target is None else target)
    await write_records(store, ("test_clock", TEAM, clock, TEAM))


@pytest.fixture
async def api(store: Store, clock: TestClock) -> Api:
    await write_records(store, ("team", TEAM, RECORD, TEAM), key(TOKEN, TEAM))
    await move(store, AHEAD_MS)
    return api_of(store, clock)


@pytest.fixture
def pages(api: Api, store: Store, clock: TestClock) -> Pages:
    return Pages(make_context(store, clock))


def is_now(text: Any, clock: TestClock) -> bool:
    """Return whether the time is the team's current time."""
    at = text if isinstance(text, int) else parse_timestamp(text)
    return at is not None and abs(at - clock.team_now(RECORD.ref)) < LATE_MS


async def test_an_unfinished_advance_is_not_settled(api: Api, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team_clock, "SETTLE_S", 0.0)
    offset_s = AHEAD_MS // SECOND_MS
    for options in ({"method": "POST", "body": {"advance_s": 60}}, {"method": "GET"}):
        status, clock_record = await send_request(api, TOKEN, path="/v1/test-clock", **options)
        assert (status, clock_record["offset_s"], clock_record["settled"]) == (200, offset_s, False)
    assert await store.team_clocks.advance(store.setup.current.teams[TEAM])
    _, clock_record = await send_request(api, TOKEN, "GET", "/v1/test-clock")
    assert (clock_record["offset_s"], "settled" in clock_record) == (offset_s + 60, False)


@pytest.mark.parametrize(("ahead", "used"), [(0, 7), (AHEAD_MS, 0)])
async def test_the_quota_month_uses_team_time(
    api: Api, pages: Pages, store: Store, clock: TestClock, ahead: int, used: int
) -> None:
    """A sandbox team uses no quota; the count is from when the team was live."""

    async def use(tx: Any) -> None:
        account = (await lock_accounts(tx, [RECORD.ref]))[RECORD.ref]
        account.month, account.used = month_of(clock.now()), 7
        await save_accounts(tx, [account])

    await store.database.write(use)
    await move(store, ahead)
    _, me = await send_request(api, TOKEN, "GET", "/v1/me")
    assert me["email_quota"]["used"] == used


async def test_dashboard_pages_use_team_time(api: Api, pages: Pages, clock: TestClock) -> None:
    _, sent = await send_request(api, TOKEN, "POST", "/v1/emails", MAIL)
    assert is_now(sent["created_at"], clock)
    for path in ("/messages", f"/messages/{sent['id']}", "/settings"):
        html = (await pages.get(TEAM_PAGE + path)).html
        days = {sent["created_at"][:10], timestamp(clock.team_now(RECORD.ref))[:10]}  # two around midnight
        assert any(day in html for day in days), path
        assert f'datetime="{timestamp(clock.now())[:10]}' not in html, path


async def test_a_team_with_a_clock_cannot_go_live(pages: Pages, store: Store) -> None:
    assert "Test clock" in (await pages.get(f"{TEAM_PAGE}/settings")).text
    for role in ("owner", "operator"):
        page = await pages.post(f"{TEAM_PAGE}/settings/live", who=role)
        assert "test clock" in (page.notice + page.text).casefold()
        assert store.setup.current.teams[TEAM].record.mode == "sandbox"


async def test_created_records_use_team_time(api: Api, store: Store, clock: TestClock) -> None:
    _, created = await send_request(api, TOKEN, "POST", "/v1/keys", {"name": "new"})
    _, rotated = await send_request(api, TOKEN, "POST", f"/v1/keys/{created['id']}/rotate")
    for id_ in (created["id"], rotated["id"]):
        assert is_now(store.setup.current.callers[id_].key.created_at, clock)
    for path, body in (("/v1/templates", TEMPLATE), ("/v1/layouts", {"name": "Frame", "html": "<p>{{content}}</p>"})):
        status, draft = await send_request(api, TOKEN, "POST", path, body)
        assert status == 201, draft
        _, submitted = await send_request(api, TOKEN, "POST", f"{path}/{draft['id']}/submit")
        assert is_now(submitted["submitted_at"], clock), path


async def test_imports_use_team_time(api: Api, store: Store, clock: TestClock) -> None:
    id_ = await imports.begin_suppression_import(store, SERVICE, RECORD, b"email\na@example.com\n")
    imported = await imports.finish_import(store, RECORD, id_)
    assert is_now(imported.created_at, clock)
    assert is_now(imported.ended_at, clock)
    _, listing = await send_request(api, TOKEN, "GET", "/v1/suppressions")
    assert [is_now(item["created_at"], clock) for item in listing["data"]] == [True]
    _, feed = await send_request(api, TOKEN, "GET", "/v1/events")
    assert all(is_now(item["created_at"], clock) for item in feed["data"])


async def test_secret_rotation_uses_team_time(api: Api, store: Store, clock: TestClock) -> None:
    _, hook = await send_request(
        api, TOKEN, "POST", "/v1/webhooks", {"url": "https://a.example.com/hook", "events": ["*"]}
    )
    _, turned = await send_request(api, TOKEN, "POST", f"/v1/webhooks/{hook['id']}/rotate")
    assert is_now((parse_timestamp(turned["secret_rotates_until"]) or 0) - DAY_MS, clock)
    await move(store, AHEAD_MS + DAY_MS)
    _, read = await send_request(api, TOKEN, "GET", f"/v1/webhooks/{hook['id']}")
    assert read["secret_rotates_until"] is None
