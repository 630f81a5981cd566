"""Dead letters, one or all at once: an audit entry for each that is retried or dropped."""

from collections.abc import Awaitable, Callable

import pytest

from heliograph.domain.audit.actor import COMMAND_LINE, Actor
from heliograph.manage import dead_letters
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.manage.conftest import ADA, list_entries
from tests.storage.samples import message
from tests.storage.test_dead_letters import kill

pytestmark = pytest.mark.anyio

All = Callable[[Store, Actor, int], Awaitable[object]]


@pytest.fixture
async def dead(store: Store, clock: TestClock, teams: None) -> list[str]:
    """Return the messages of three dead letters."""
    for index in range(3):
        await store.messages.accept(message(clock, f"a{index}@example.com"))
    return [letter.id for letter in await kill(store, clock, 3)]


async def test_dead_letter_single_action_writes_one_audit_entry(
    store: Store, clock: TestClock, dead: list[str]
) -> None:
    first, second, _ = await store.dead_letters.list_page()
    for _ in range(2):  # the second time they are no longer dead letters
        await dead_letters.retry(store, ADA, first.key)
        await dead_letters.drop(store, COMMAND_LINE, second.key)
    assert await list_entries(store) == [
        ("command line", "deadletter.drop", dead[1], ""),
        ("usr_ada", "deadletter.retry", dead[0], ""),
    ]


@pytest.mark.parametrize(
    ("move", "action"), [(dead_letters.retry_all, "deadletter.retry"), (dead_letters.drop_all, "deadletter.drop")]
)
async def test_dead_letter_bulk_action_writes_one_audit_entry(
    store: Store, clock: TestClock, dead: list[str], move: All, action: str
) -> None:
    died = min(letter.at for letter in await store.dead_letters.list_page())
    for until in (died - 1, clock.now(), clock.now()):  # only the second finds any
        await move(store, ADA, until)
    assert sorted(await list_entries(store)) == sorted(("usr_ada", action, id_, "") for id_ in dead)
    assert await store.dead_letters.list_page() == []
