"""Meta's updates of templates: applied once per team, with event, audit entry and notice (contract 17)."""

import json
from typing import Any
from unittest.mock import Mock

import pytest

from heliograph.domain.setup.records import TeamRecord, Template
from heliograph.domain.setup.snapshot import to_row
from heliograph.inbound.report_service import store_template_update
from heliograph.runtime import metrics
from heliograph.storage.store import Store
from heliograph.templates.policy.meta_status import UpstreamUpdate
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
    rows = [to_row("team", item.id, item, item.id) for item in teams]
    await set_up(store, rows=[*rows, *(to_row("template", item.id, item, item.team) for item in templates)])
    return store


async def tell(store: Store, clock: TestClock, **extra: Any) -> None:
    options: dict[str, Any] = {
        "name": "parcel",
        "language": "en",
        "at": clock.now(),
        "status": "paused",
        "reason": "FIRST_PAUSE",
    }
    await store_template_update(store, "meta", UpstreamUpdate(**options | extra), clock.now())


async def published_events(store: Store, clock: TestClock, team: int = 1) -> list[dict[str, Any]]:
    clock.forward(1000)
    return [json.loads(item.detail or "null") for item in await store.events.feed(team, "", 1000)]


async def test_status_update_notifies_each_team_with_the_template(world: Store, clock: TestClock) -> None:
    await tell(world, clock)
    first, second = await published_events(world, clock)
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
    assert second["id"] == "tpl_2" and [item["id"] for item in await published_events(world, clock, 2)] == ["tpl_3"]
    (entry,) = await world.audit.list_rows("team_a")
    assert (entry.actor, entry.action, entry.subject) == ("service", "template.upstream_paused", "tpl_1")


async def test_repeated_late_or_unknown_status_update_changes_nothing(
    world: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    started_at, unclaimed = clock.now(), Mock()
    monkeypatch.setitem(metrics.unclaimed_templates, "meta", unclaimed)
    await tell(world, clock)
    before, version = await published_events(world, clock), world.setup.current.version
    await tell(world, clock)
    await tell(world, clock, at=started_at - 1, status="approved", reason="")
    await tell(world, clock, name="of nobody", status="disabled")
    assert await published_events(world, clock) == before and world.setup.current.version == version
    unclaimed.inc.assert_called_once_with()
    await tell(world, clock, status="approved", reason="")
    assert [item["upstream_status"] for item in (await published_events(world, clock))[len(before) :]] == [
        "approved"
    ] * 2


async def test_status_update_is_kept_after_a_template_change(world: Store, clock: TestClock) -> None:
    await tell(world, clock)
    changed = Template(id="tpl_1", team="team_a", channel="whatsapp", name="parcel", language="en", version=2)
    await set_up(world, rows=[to_row("template", "tpl_1", changed, "team_a")])
    assert world.setup.current.teams["team_a"].upstream["parcel", "en"].status == "paused"
