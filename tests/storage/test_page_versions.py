"""Version tokens of live pages: each changes with the data that its pages show, and with nothing else."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.domain.delivery.outcome import DueReport, Report
from heliograph.storage.outcomes import RecipientUpdate
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql
from tests.storage.test_search import accept_recipient, send

pytestmark = pytest.mark.anyio

HOOK = "whk_1"


async def of_team(store: Store) -> dict[str, str]:
    return await store.page_versions.team_lists(1)


async def accept(store: Store, clock: TestClock, sql: Sql, prefix: str = "eml_", team: int = 1) -> None:
    await send(store, clock, prefix, "+447700900123" if prefix != "eml_" else "ada@example.com", team=team)


async def deliver(store: Store, clock: TestClock, sql: Sql) -> None:
    await accept_recipient(store, clock)


async def clear(store: Store, clock: TestClock, sql: Sql) -> None:
    await store.database.write(lambda tx: tx.run("clear_inbox", team=1, at=clock.now()))


async def verify(store: Store, clock: TestClock, sql: Sql) -> None:
    await sql(
        "INSERT INTO verification (id, team, key_id, phone, prefix, magic, sandbox, status, wrong, salt, digest, price,"
        f" charge, created_at, expires_at) VALUES ('vrf_1', 1, 'k', '+1', '+1', 0, 0, 'pending', 0, '', '', 0, 'none',"
        f" {clock.now()}, {clock.now() + 1000})"
    )


async def guess(store: Store, clock: TestClock, sql: Sql) -> None:
    await verify(store, clock, sql)
    await sql("UPDATE verification SET wrong = wrong + 1")


async def expire(store: Store, clock: TestClock, sql: Sql) -> None:
    clock.forward(1000)


Step = Callable[[Store, TestClock, Sql], Awaitable[None]]


@pytest.mark.parametrize(
    ("before", "step", "changed"),
    [
        ([], accept, {"accepted"}),
        ([accept], accept, {"accepted"}),
        ([], partial(accept, prefix="sms_"), {"accepted"}),
        ([accept], partial(accept, team=2), set()),
        ([accept], deliver, {"events"}),
        ([], clear, {"cleared"}),
        ([], verify, {"verifications"}),
        ([], guess, {"verifications"}),
        ([verify], expire, {"verifications"}),
        ([accept], expire, set()),
    ],
)
async def test_page_version_of_a_team_changes_with_its_data(
    store: Store, clock: TestClock, sql: Sql, before: list[Step], step: Step, changed: set[str]
) -> None:
    for item in before:
        await item(store, clock, sql)
    seen = await of_team(store)
    await step(store, clock, sql)
    now = await of_team(store)
    assert {name for name in now if now[name] != seen[name]} - {"account"} == changed  # these may change


async def test_page_version_changes_with_a_late_row_with_an_earlier_id(
    store: Store, clock: TestClock, sql: Sql
) -> None:
    await send(store, clock, "eml_", "ada@example.com")
    await send(store, clock, "eml_", "bob@example.com")
    await accept_recipient(store, clock)
    seen = await of_team(store)
    await sql("UPDATE figure SET delivered = delivered + 1 WHERE team = 1")  # as another process's report does
    assert (await of_team(store))["events"] != seen["events"]


async def test_page_version_of_a_webhook_changes_with_its_deliveries(store: Store, clock: TestClock, sql: Sql) -> None:
    async def word() -> Any:
        return await store.page_versions.webhook_page(HOOK)

    words = [await word()]
    for change in (
        "INSERT INTO delivery (webhook, team, event, subject, state, attempt, due_at, created_at)"
        f" VALUES ('{HOOK}', 1, 'evt_1', 'eml_1', 'waiting', 0, 0, 1)",
        "UPDATE delivery SET attempt = 1",
        "UPDATE delivery SET state = 'exhausted'",
        "UPDATE delivery SET created_at = 2",  # replayed
        f"INSERT INTO endpoint (webhook, epoch, failing_since) VALUES ('{HOOK}', 1, 5)",
    ):
        await sql(change)
        words.append(await word())
    assert len({str(item) for item in words}) == len(words)
    await sql(change.replace(HOOK, "whk_other"))
    assert await word() == words[-1]


async def test_page_version_of_the_queues_changes_with_the_outbox(store: Store, clock: TestClock, sql: Sql) -> None:
    async def word() -> Any:
        return await store.page_versions.queues_page()

    words = [await word()]
    await send(store, clock, "eml_", "ada@example.com")
    words.append(await word())
    (claim,) = await store.outbox.claim("email", 1)
    words.append(await word())
    clock.forward(1)
    sent = RecipientUpdate(
        at=clock.now(), message=claim.message, position=0, target_status="sent", accepted=True, claim=claim.token
    )
    reports = [DueReport(200, Report(status="delivered"))]
    await store.outbox.record(replace(sent, reports=reports, lane="email"))
    words.append(await word())  # the same row waits again, for a simulated report
    await sql("""UPDATE recipient SET detail = '{"reason":"quarantined"}'""")
    words.append(await word())
    assert len({str(item) for item in words}) == len(words)
