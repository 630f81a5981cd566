import asyncio
import json

import apsw
import pytest

from heliograph.bootstrap import open_store
from heliograph.settings import Settings
from tests.storage.samples import message

from .conftest import Run

QUARANTINE = """DELETE FROM outbox; UPDATE recipient SET status = 'failed', detail = '{"reason":"quarantined"}'"""


async def _dead(count: int) -> None:
    """Create `count` dead letters of the first team."""
    async with open_store(Settings()) as store:
        for _ in range(count):
            await store.messages.accept(message(store.clock))
    database = apsw.Connection("heliograph.db")
    database.execute(QUARANTINE)
    database.close()


def test_dead_letters_are_listed_retried_and_dropped(run: Run, example: str) -> None:
    run("apply", example)
    assert run("deadletter", "list").out == "The dead-letter queue is empty.\n"
    asyncio.run(_dead(4))
    lines = json.loads(run("deadletter", "list", "--json").out)["data"]
    assert {(line["team"], line["address"]) for line in lines} == {("team_acme", "ada@example.com")}
    assert run("deadletter", "list").out.splitlines()[0].startswith(lines[0]["key"])

    assert run("deadletter", "retry", lines[0]["key"]).out == "1 queued again\n"
    assert run("deadletter", "drop", lines[1]["key"]).out == "1 dropped\n"
    for command in ("retry", "drop"):
        repeated = run("deadletter", command, lines[0]["key"])
        assert (repeated.code, repeated.out) == (1, "")
        assert "is no longer in the dead-letter queue" in repeated.err
    assert run("deadletter", "drop", "--all").out == "2 dropped\n"
    assert run("deadletter", "retry", "--all").out == "0 queued again\n"


@pytest.mark.parametrize("arguments", [(), ("12",), ("a-b",), ("1-0", "--all")])
def test_either_a_key_or_all_is_required(run: Run, arguments: tuple[str, ...]) -> None:
    for command in ("retry", "drop"):
        ended = run("deadletter", command, *arguments)
        assert (ended.code, ended.out) == (2, "")
        assert "heliograph deadletter list" in ended.err
