"""What Meta tells of templates: to each team that sends one, once, with event, entry and notice (contract 17)."""

import json
from typing import Any
from unittest.mock import Mock

import pytest

from heliograph.domain.setup.records import TeamRecord, Template
from heliograph.domain.setup.snapshot import to_row
from heliograph.inbound.report_service import take_template_news
from heliograph.runtime import metrics
from heliograph.storage.store import Store
from heliograph.templates.policy.meta_status import UpstreamNews
from tests.clocks import TestClock
from tests.setup_helpers import set_up

pytestmark = pytest.mark.anyio


@pytest.fixture
async def world(store: Store) -> Store:
    teams = [TeamRecord(ref=ref, id=id_, name=id_) for ref, id_ in ((1, "team_a"), (2, "team_b"))]
    templates = [
        Template(id=id_, team=team, channel="whatsapp", name=name, upstream_name="parcel", language="en")
        for id_, team, name in (("tpl_1", "team_a", "One"), ("tpl_2", "team_a", "Two"), ("tpl_3", "team_b", "Three"))
    ]
    rows = [to_row("team", one.id, one, one.id) for one in teams]
    await set_up(store, rows=[*rows, *(to_row("template", one.id, one, one.team) for one in templates)])
    return store


async def tell(store: Store, clock: TestClock, **more: Any) -> None:
    given: dict[str, Any] = {
        "name": "parcel",
        "language": "en",
        "at": clock.now(),
        "status": "paused",
        "reason": "FIRST_PAUSE",
    }
    await take_template_news(store, "meta", UpstreamNews(**given | more), clock.now())


async def told(store: Store, clock: TestClock, team: int = 1) -> list[dict[str, Any]]:
    clock.forward(1000)
    return [json.loads(one.detail or "null") for one in await store.events.feed(team, "", 1000)]


async def test_each_team_that_sends_it_is_told_of_each_of_its_templates(world: Store, clock: TestClock) -> None:
    await tell(world, clock)
    first, second = await told(world, clock)
    assert first == {
        "object": "template",
        "id": "tpl_1",
        "name": "One",
        "channel": "whatsapp",
        "upstream_name": "parcel",
        "language": "en",
        "upstream_status": "paused",
        "upstream_reason": "FIRST_PAUSE",
        "upstream_quality": None,
        "previous_upstream_status": None,
    }
    assert second["id"] == "tpl_2" and [one["id"] for one in await told(world, clock, 2)] == ["tpl_3"]
    (entry,) = await world.audit.lines("team_a")
    assert (entry.actor, entry.action, entry.subject) == ("service", "template.upstream_paused", "tpl_1")


async def test_what_comes_again_or_late_or_about_nothing_of_ours_changes_nothing(
    world: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, unclaimed = clock.now(), Mock()
    monkeypatch.setitem(metrics.unclaimed_templates, "meta", unclaimed)
    await tell(world, clock)
    before, version = await told(world, clock), world.setup.current.version
    await tell(world, clock)
    await tell(world, clock, at=began - 1, status="approved", reason="")
    await tell(world, clock, name="of nobody", status="disabled")
    assert await told(world, clock) == before and world.setup.current.version == version
    unclaimed.inc.assert_called_once_with()
    await tell(world, clock, status="approved", reason="")
    assert [one["upstream_status"] for one in (await told(world, clock))[len(before) :]] == ["approved"] * 2


async def test_what_is_told_outlives_a_change_of_the_template(world: Store, clock: TestClock) -> None:
    await tell(world, clock)
    changed = Template(id="tpl_1", team="team_a", channel="whatsapp", name="parcel", language="en", version=2)
    await set_up(world, rows=[to_row("template", "tpl_1", changed, "team_a")])
    assert world.setup.current.teams["team_a"].upstream["parcel", "en"].status == "paused"
