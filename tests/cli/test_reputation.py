import asyncio
import json
from typing import Any

import pytest

from heliograph.bootstrap import open_store
from heliograph.domain.mail.reputation import Reputation
from heliograph.runtime.clock import Clock
from heliograph.settings import Settings

from .conftest import Run

RATES = "of 1000 emails 10.0% bounced and 0.20% got complaints"


async def _judge(*counts: int) -> None:
    """Update the reputations from the counts of this hour."""
    async with open_store(Settings()) as store:
        row = (store.setup.current.teams["team_acme"].record.ref, Clock().now(), *counts)
        await store.database.write(lambda tx: tx.run("count_reputation", counts=[row]))
        await store.reputations.update_all()


async def _reputation() -> Reputation | None:
    async with open_store(Settings()) as store:
        return store.reputations.current.get("team_acme")


def test_rates_are_shown_and_a_pause_is_ended(run: Run, example: str) -> None:
    run("apply", example)
    assert run("reputation").out == "no email was sent in the last 7 days\n"
    assert run("reputation", "team_acme").out == "team_acme  ok: no email was sent\n"
    assert run("reputation", "resume", "team_acme").out == "direct sends of team_acme were not paused\n"

    asyncio.run(_judge(1000, 100, 2))
    (row,) = json.loads(run("reputation", "--json").out)["data"]
    assert row.pop("since").startswith("20")
    assert row == {"team": "team_acme", "state": "paused", "sends": 1000, "bounces": 100, "complaints": 2}
    for arguments in ((), ("show",), ("team_acme",), ("--database", "sqlite:///heliograph.db", "team_acme")):
        row = run("reputation", *arguments).out
        assert row.startswith("team_acme  paused since 20")
        assert row.endswith(f": {RATES}\n")

    assert run("reputation", "resume", "team_acme").out == "direct sends of team_acme are resumed\n"
    resumed: Any = asyncio.run(_reputation())
    assert (resumed.state, resumed.sends, bool(resumed.resumed_at)) == ("ok", 0, True)
    assert run("reputation").out.startswith("team_acme  ok since 20")


@pytest.mark.parametrize("arguments", [("team_x",), ("show", "team_x"), ("resume", "team_x")])
def test_an_unknown_team(run: Run, arguments: tuple[str, ...]) -> None:
    ended = run("reputation", *arguments)
    assert (ended.code, ended.out, ended.err) == (1, "", "heliograph: There is no team team_x.\n")
