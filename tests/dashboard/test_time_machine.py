"""The test clock on every page of a team: its buttons, who sees them, and the page shown afterwards."""

from typing import Any

import pytest

from heliograph.dashboard.views import settings
from heliograph.domain.limits import HOUR_MS
from heliograph.domain.setup.records import TeamRecord
from heliograph.storage.store import Store
from tests.dashboard.inside import Pages, write_records
from tests.storage.test_idempotency import make_context

pytestmark = pytest.mark.anyio

HERE = "/dashboard/teams/team_a"
ADVANCE = f"{HERE}/settings/test-clock/advance"


@pytest.fixture
async def pages(store: Store, clock: Any, monkeypatch: pytest.MonkeyPatch) -> Pages:
    monkeypatch.setattr(settings, "CLOCK_MOVE_WAIT_S", 0.0)  # no worker moves the clock here
    await write_records(
        store,
        ("team", "team_a", TeamRecord(ref=1, id="team_a", name="Acme", test_clock=True), "team_a"),
        ("team", "team_b", TeamRecord(ref=2, id="team_b", name="Other"), "team_b"),
    )
    return Pages(make_context(store, clock))


@pytest.mark.parametrize("path", ["", "/messages", "/events", "/webhooks", "/verifications", "/inbox", "/settings"])
async def test_pages_of_team_with_test_clock_can_move_it(pages: Pages, path: str) -> None:
    shown = await pages.get(HERE + path)
    assert all(f'name="hours" value="{hours}"' in shown.html for hours in (1, 24, 120))
    assert f'name="back" value="{HERE}{path}"' in shown.html
    assert "Test clock: " in shown.text
    assert "Test clock: " not in (await pages.get(f"/dashboard/teams/team_b{path}")).text


async def test_viewer_sees_the_test_clock_without_buttons(pages: Pages) -> None:
    shown = await pages.get(f"{HERE}/messages", "viewer")
    assert "Test clock: " in shown.text and 'name="hours"' not in shown.html
    assert (await pages.post(ADVANCE, {"hours": "1"}, "viewer")).status == 403


@pytest.mark.parametrize(
    ("back", "location"),
    [
        (f"{HERE}/messages/em_1", f"{HERE}/messages/em_1"),
        (HERE, HERE),
        ("/dashboard/teams/team_ab", f"{HERE}/settings"),
        ("https://evil.test/", f"{HERE}/settings"),
        (f"{HERE}/\r\nX-Evil: 1", f"{HERE}/settings"),
        ("", f"{HERE}/settings"),
    ],
)
async def test_moving_the_clock_returns_to_the_page(pages: Pages, store: Store, back: str, location: str) -> None:
    done = await pages.post(ADVANCE, {"hours": "120", "back": back}, "developer")
    assert (done.status, done.headers["location"]) == (303, location)
    moved = store.setup.current.teams["team_a"].clock
    assert moved and moved.target == 120 * HOUR_MS
    assert "moving" in (await pages.get(f"{HERE}/messages")).text


async def test_signed_out_pages_are_shown(pages: Pages) -> None:
    assert (await pages.get("/dashboard/sign-in", "")).status == 200
