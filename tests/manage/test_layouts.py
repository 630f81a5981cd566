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


async def test_of_two_who_write_at_once_neither_is_lost(store: Store) -> None:
    await set_up(store, rows=[to_row("team", "team_1", TeamRecord(ref=1, id="team_1", name="One"), "team_1")])
    base = Layout(id="lay_1", team="team_1", name="Frame", status="draft")
    await layouts.write(store, COMMAND_LINE, base, WORDS)
    seen = layouts.proposed(store.setup.current, layouts.find(store.setup.current, "team_1", "lay_1"))
    writes = [layouts.write(store, COMMAND_LINE, seen, WORDS | {"name": name}) for name in ("Ada's", "Bo's")]
    done = await asyncio.gather(*writes, return_exceptions=True)
    assert [one for one in done if one is True] == [True]
    (refused,) = [one for one in done if isinstance(one, InvalidRequest)]
    assert refused.message.startswith("Somebody changed this layout while you wrote.")


ADA, KEY = Actor(kind="person", id="usr_ada"), Actor(kind="key", id="key_1")


@pytest.mark.parametrize(
    ("asker", "decide", "told"),
    [
        (ADA, {"reason": "No brand."}, ["Refused: the layout Frame. No brand."]),
        (ADA, {}, ["Approved: the layout Frame."]),
        (KEY, {}, []),  # nobody to tell
    ],
)
async def test_whoever_asked_is_told_of_the_decision(
    store: Store, asker: Actor, decide: dict[str, Any], told: list[str]
) -> None:
    await set_up(store, rows=[to_row("team", "team_1", TeamRecord(ref=1, id="team_1", name="One"), "team_1")])
    await layouts.write(store, KEY, Layout(id="lay_1", team="team_1", name="Frame", status="draft"), WORDS)
    await layouts.submit(store, asker, "team_1", "lay_1")
    decided = layouts.refuse(store, COMMAND_LINE, "lay_1", None, **decide) if decide else None
    await (decided or layouts.approve(store, COMMAND_LINE, "lay_1"))
    found = await store.decisions.take("usr_ada")
    assert [(one.text, one.place) for one in found] == [
        (text, "/dashboard/teams/team_1/layouts/lay_1") for text in told
    ]
    if not decide:
        assert layouts.find(store.setup.current, "team_1", "lay_1").asked_by == ""
