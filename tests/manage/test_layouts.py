import asyncio

import pytest

from heliograph.manage import layouts
from heliograph.rules.audit import COMMAND_LINE
from heliograph.rules.refusals import InvalidRequest
from heliograph.rules.setup.records import Layout, TeamRecord
from heliograph.rules.setup.snapshot import to_row
from heliograph.storage.store import Store
from tests.entries import set_up

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
