"""A test clock without waiting (contract 19): in one process, on a store whose team is forty days ahead."""

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
from tests.api.test_own_writes import TOKEN, api_of, ask, key
from tests.clocks import TestClock
from tests.dashboard.inside import Pages, set_up
from tests.storage.test_idempotency import make_context

pytestmark = pytest.mark.anyio
TEAM, HERE = "team_s", "/dashboard/teams/team_s"
AHEAD_MS, LATE_MS = 40 * DAY_MS, 60 * SECOND_MS
RECORD = TeamRecord(ref=1, id=TEAM, name="S", mode="sandbox", rate_limit=0, test_clock=True)
MAIL = {"to": "delivered@simulator.test", "subject": "S", "text": "T"}
TEMPLATE = {"name": "Hello", "channel": "email", "subject": "S", "text": "T", "html": "<p>T</p>"}


async def move(store: Store, ahead: int, target: int | None = None) -> None:
    clock = TeamClock(team=TEAM, ahead=ahead, target=ahead if target is None else target)
    await set_up(store, ("test_clock", TEAM, clock, TEAM))


@pytest.fixture
async def api(store: Store, clock: TestClock) -> Api:
    await set_up(store, ("team", TEAM, RECORD, TEAM), key(TOKEN, TEAM))
    await move(store, AHEAD_MS)
    return api_of(store, clock)


@pytest.fixture
def pages(api: Api, store: Store, clock: TestClock) -> Pages:
    return Pages(make_context(store, clock))


def is_now(found: Any, clock: TestClock) -> bool:
    """Whether it is the team's present."""
    at = found if isinstance(found, int) else parse_timestamp(found)
    return at is not None and abs(at - clock.of(RECORD.ref)) < LATE_MS


async def test_an_advance_that_takes_too_long(api: Api, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team_clock, "SETTLE_S", 0.0)
    begun = AHEAD_MS // SECOND_MS
    for given in ({"method": "POST", "body": {"advance_s": 60}}, {"method": "GET"}):
        status, told = await ask(api, TOKEN, path="/v1/test-clock", **given)
        assert (status, told["offset_s"], told["settled"]) == (200, begun, False)
    assert await store.team_clocks.step(store.setup.current.teams[TEAM])
    _, told = await ask(api, TOKEN, "GET", "/v1/test-clock")
    assert (told["offset_s"], "settled" in told) == (begun + 60, False)


@pytest.mark.parametrize(("ahead", "used"), [(0, 7), (AHEAD_MS, 0)])
async def test_the_month_of_the_quota(
    api: Api, pages: Pages, store: Store, clock: TestClock, ahead: int, used: int
) -> None:
    """A sandbox team uses none: it is what the team used while it was live."""

    async def use(tx: Any) -> None:
        account = (await lock_accounts(tx, [RECORD.ref]))[RECORD.ref]
        account.month, account.used = month_of(clock.now()), 7
        await save_accounts(tx, [account])

    await store.database.write(use)
    await move(store, ahead)
    _, me = await ask(api, TOKEN, "GET", "/v1/me")
    assert me["email_quota"]["used"] == used


async def test_pages_have_its_time(api: Api, pages: Pages, clock: TestClock) -> None:
    _, made = await ask(api, TOKEN, "POST", "/v1/emails", MAIL)
    assert is_now(made["created_at"], clock)
    for path in ("/messages", f"/messages/{made['id']}", "/settings"):
        shown = (await pages.get(HERE + path)).html
        days = {made["created_at"][:10], timestamp(clock.of(RECORD.ref))[:10]}  # two at midnight
        assert any(day in shown for day in days), path
        assert f'datetime="{timestamp(clock.now())[:10]}' not in shown, path


async def test_it_does_not_go_live(pages: Pages, store: Store) -> None:
    assert "Test clock" in (await pages.get(f"{HERE}/settings")).text
    for who in ("owner", "operator"):
        shown = await pages.post(f"{HERE}/settings/live", who=who)
        assert "test clock" in (shown.notice + shown.text).casefold()
        assert store.setup.current.teams[TEAM].record.mode == "sandbox"


async def test_what_is_made_has_its_time(api: Api, store: Store, clock: TestClock) -> None:
    _, made = await ask(api, TOKEN, "POST", "/v1/keys", {"name": "new"})
    _, rotated = await ask(api, TOKEN, "POST", f"/v1/keys/{made['id']}/rotate")
    for id_ in (made["id"], rotated["id"]):
        assert is_now(store.setup.current.callers[id_].key.created_at, clock)
    for path, body in (("/v1/templates", TEMPLATE), ("/v1/layouts", {"name": "Frame", "html": "<p>{{content}}</p>"})):
        status, draft = await ask(api, TOKEN, "POST", path, body)
        assert status == 201, draft
        _, asked = await ask(api, TOKEN, "POST", f"{path}/{draft['id']}/submit")
        assert is_now(asked["submitted_at"], clock), path


async def test_imports_have_its_time(api: Api, store: Store, clock: TestClock) -> None:
    id_ = await imports.begin(store, SERVICE, RECORD, b"email\na@example.com\n")
    done = await imports.finish(store, RECORD, id_)
    assert is_now(done.created_at, clock)
    assert is_now(done.ended_at, clock)
    _, listed = await ask(api, TOKEN, "GET", "/v1/suppressions")
    assert [is_now(one["created_at"], clock) for one in listed["data"]] == [True]
    _, told = await ask(api, TOKEN, "GET", "/v1/events")
    assert all(is_now(one["created_at"], clock) for one in told["data"])


async def test_a_secret_rotates_until_a_day_of_the_team(api: Api, store: Store, clock: TestClock) -> None:
    _, hook = await ask(api, TOKEN, "POST", "/v1/webhooks", {"url": "https://a.example.com/hook", "events": ["*"]})
    _, turned = await ask(api, TOKEN, "POST", f"/v1/webhooks/{hook['id']}/rotate")
    assert is_now((parse_timestamp(turned["secret_rotates_until"]) or 0) - DAY_MS, clock)
    await move(store, AHEAD_MS + DAY_MS)
    _, read = await ask(api, TOKEN, "GET", f"/v1/webhooks/{hook['id']}")
    assert read["secret_rotates_until"] is None
