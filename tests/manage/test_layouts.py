import asyncio
from typing import Any

import pytest

from heliograph.domain.audit.actor import COMMAND_LINE, Actor
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import Layout, TeamRecord
from heliograph.domain.setup.snapshot import to_row
from heliograph.storage.store import Store
from heliograph.templates import layout_service as layouts
from tests.setup_helpers import set_up

pytestmark = pytest.mark.anyio
WORDS = {"html": "<main>{{content}}</main>", "text": "{{content}}"}


async def test_layout_saved_concurrently_loses_no_change(store: Store) -> None:
    await set_up(store, rows=[to_row("team", "team_1", TeamRecord(ref=1, id="team_1", name="One"), "team_1")])
    base = Layout(id="lay_1", team="team_1", name="Frame", status="draft")
    await layouts.save(store, COMMAND_LINE, base, WORDS)
    seen = layouts.draft_or_current(store.setup.current, layouts.get(store.setup.current, "team_1", "lay_1"))
    writes = [layouts.save(store, COMMAND_LINE, seen, WORDS | {"name": name}) for name in ("Ada's", "Bo's")]
    result = await asyncio.gather(*writes, return_exceptions=True)
    assert [item for item in result if item is True] == [True]
    (error,) = [item for item in result if isinstance(item, InvalidRequest)]
    assert error.message.startswith("Someone changed this layout while you were editing.")


ADA, KEY = Actor(kind="person", id="usr_ada"), Actor(kind="key", id="key_1")


@pytest.mark.parametrize(
    ("asker", "decide", "told"),
    [
        (ADA, {"reason": "No brand."}, ["Refused: the layout Frame. No brand."]),
        (ADA, {}, ["Approved: the layout Frame."]),
        (KEY, {}, []),  # nobody is notified
    ],
)
async def test_layout_requester_is_notified_of_the_decision(
    store: Store, asker: Actor, decide: dict[str, Any], told: list[str]
) -> None:
    await set_up(store, rows=[to_row("team", "team_1", TeamRecord(ref=1, id="team_1", name="One"), "team_1")])
    await layouts.save(store, KEY, Layout(id="lay_1", team="team_1", name="Frame", status="draft"), WORDS)
    await layouts.submit(store, asker, "team_1", "lay_1")
    decided = layouts.refuse(store, COMMAND_LINE, "lay_1", None, **decide) if decide else None
    await (decided or layouts.approve(store, COMMAND_LINE, "lay_1"))
    result = await store.decisions.take_unseen("usr_ada")
    assert [(item.text, item.link) for item in result] == [
        (text, "/dashboard/teams/team_1/layouts/lay_1") for text in told
    ]
    if not decide:
        assert layouts.get(store.setup.current, "team_1", "lay_1").asked_by == ""
