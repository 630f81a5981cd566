"""The hash chain of the audit log: manual changes are detected, the service's own changes are valid."""

import asyncio
import re
from pathlib import Path

import pytest

from heliograph.bootstrap import migrate, open_store, read_diagnostics_of
from heliograph.cli.checks.store import check_audit_log
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.settings import Settings
from heliograph.storage import audit
from heliograph.storage.engine.database import Tx
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql, asking

pytestmark = pytest.mark.anyio

ENTRIES = 8


async def add(store: Store, *subjects: str) -> None:
    entries = [
        COMMAND_LINE.audit_entry(store.clock.now(), "test.act", item, "a detail", team="team_a") for item in subjects
    ]
    await store.database.write(lambda tx: audit.write(tx, *entries))


@pytest.fixture
async def keys(store: Store, sql: Sql) -> list[int]:
    await add(store, "one", "two", "three")
    for number in range(ENTRIES - 3):
        await add(store, f"single {number}")
    return [row[0] for row in await sql("SELECT key FROM audit ORDER BY place")]


async def test_chain_written_by_the_service_verifies(
    store: Store, keys: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for portion in (1, 3, 5_000):
        monkeypatch.setattr(audit, "VERIFY_BATCH", portion)
        chain = await store.audit.verify()
        assert (chain.entries, chain.broken, chain.has_unlinked) == (ENTRIES, None, False)
    finding = check_audit_log(chain)
    assert (finding.level, chain.link[:16] in finding.message) == ("ok", True)


COPY = (
    "INSERT INTO audit (key, at, person, team, action, subject, detail, address, place, salt, link) "
    "SELECT {new}, at, person, team, action, subject, 'forged', address, {place}, salt, link FROM audit "
    "WHERE key = {k2}"
)
# Manual changes: SQL statements, and the problem that is reported.
TAMPERED = {
    **{
        f"another {column}": ([f"UPDATE audit SET {column} = {value} WHERE key = {{k2}}"], r"entry {k2} .*changed")
        for column, value in {
            "at": "at + 1",
            "person": "'somebody'",
            "team": "NULL",
            "action": "'test.other'",
            "subject": "'other'",
            "detail": "''",
            "address": "'192.0.2.1'",
        }.items()
    },
    "another key": (["UPDATE audit SET key = 999 WHERE key = {k2}"], "entry 999 .*changed"),
    "one removed": (["DELETE FROM audit WHERE key = {k2}"], "before entry {k3} an entry was removed"),
    "some removed": (["DELETE FROM audit WHERE key IN ({k2}, {k3})"], "before entry {k4} 2 entries were removed"),
    "the first removed": (["DELETE FROM audit WHERE key = {k0}"], "before entry {k1} an entry was removed"),
    "the newest removed": (["DELETE FROM audit WHERE key = {k7}"], "at the end an entry was removed"),
    "all removed": (["DELETE FROM audit"], "at the end 8 entries were removed"),
    "the head removed": (["DELETE FROM audit_head"], "end of the chain was removed"),
    "the head turned back": (
        ["UPDATE audit_head SET place = place - 1, link = (SELECT link FROM audit WHERE key = {k6})"],
        "added after the end",
    ),
    "inserted without a place, and one removed": (
        [COPY.format(new=999, place="NULL", k2="{k2}"), "DELETE FROM audit WHERE key = {k7}"],
        "at the end an entry was removed",
    ),
    "inserted in another's place": ([COPY.format(new=999, place=3, k2="{k2}")], "entry 999 .* position of another"),
    "inserted before all": ([COPY.format(new=999, place=-4, k2="{k2}")], "entry 999 .* position of another"),
    "inserted at the end": ([COPY.format(new=999, place=9, k2="{k2}")], "entry 999 .*changed"),
    "two exchanged": (
        ["UPDATE audit SET place = 7 - place WHERE key IN ({k2}, {k3})"],
        "entry {k3} .*changed, or is not in its position",
    ),
    "two keys exchanged": (
        [
            "UPDATE audit SET key = 999 WHERE key = {k2}",
            "UPDATE audit SET key = {k2} WHERE key = {k3}",
            "UPDATE audit SET key = {k3} WHERE key = 999",
        ],
        "entry {k3} .*changed, or is not in its position",
    ),
    "taken out of the chain": (["UPDATE audit SET place = NULL WHERE key = {k2}"], "before entry {k3} an entry"),
    "another link": (["UPDATE audit SET link = 'x' WHERE key = {k2}"], "entry {k2} .*changed"),
    "a feigned erasure": (
        ["UPDATE audit SET detail = 'nothing', original = '0' WHERE key = {k2}"],
        "entry {k2} .*changed",
    ),
}


@pytest.mark.parametrize("what", TAMPERED)
async def test_chain_changed_by_hand_fails_verification(
    settings: Settings, keys: list[int], sql: Sql, what: str
) -> None:
    statements, said = TAMPERED[what]
    named = {f"k{place}": key for place, key in enumerate(keys)}
    for statement in statements:
        await sql(statement.format(**named))
    result = check_audit_log((await read_diagnostics_of(settings)).audit)
    assert result.level == "FAIL"
    assert re.search(said.format(**named), result.message)


async def test_entry_rewritten_by_an_erasure_is_explained(store: Store, keys: list[int], sql: Sql) -> None:
    await store.database.write(
        lambda tx: audit.rewrite_entries(tx, [(keys[1], "one", "erased"), (keys[4], "", "erased")], 5)
    )
    await add(store, "after")
    await store.database.write(lambda tx: audit.rewrite_entries(tx, [(keys[1], "gone", "erased")], 6))
    assert (await store.audit.verify()).broken is None
    entries = await sql("SELECT subject, team FROM audit WHERE action = 'audit.erase' ORDER BY key")
    assert entries == [(str(key), "team_a") for key in (keys[1], keys[4], keys[1])]
    await sql(f"UPDATE audit SET detail = 'more' WHERE key = {keys[1]}")
    broken = (await store.audit.verify()).broken
    assert broken and (broken.key, "no erasure explains it" in broken.reason) == (keys[1], True)


async def test_hash_of_erased_content_cannot_be_guessed(store: Store, keys: list[int], sql: Sql) -> None:
    ((salt,),) = await sql(f"SELECT salt FROM audit WHERE key = {keys[1]}")
    await store.database.write(lambda tx: audit.rewrite_entries(tx, [(keys[1], "one", "erased")], 5))
    ((after, original),) = await sql(f"SELECT salt, original FROM audit WHERE key = {keys[1]}")
    assert len(salt) == 32 and after != salt and original
    assert len({row[0] for row in await sql("SELECT salt FROM audit")}) == ENTRIES + 1


async def test_concurrent_writes_keep_the_chain_valid(store: Store, other: Store, sql: Sql) -> None:
    await asyncio.gather(*(add(item, f"{n} a", f"{n} b") for n in range(20) for item in (store, other)))
    assert await sql("SELECT place FROM audit ORDER BY place") == [(place,) for place in range(1, 81)]
    chain = await store.audit.verify()
    assert (chain.entries, chain.broken) == (80, None)


async def test_failed_change_leaves_the_chain_unchanged(store: Store, keys: list[int]) -> None:
    async def function(tx: Tx) -> None:
        await audit.write(tx, COMMAND_LINE.audit_entry(0, "test.act", "never"))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.database.write(function)
    await add(store, "next")
    chain = await store.audit.verify()
    assert (chain.entries, chain.broken) == (ENTRIES + 1, None)


async def test_entry_without_a_position_is_accepted_from_the_previous_version(
    settings: Settings, keys: list[int], sql: Sql
) -> None:
    """During a rolling upgrade, until a job links the entry."""
    await sql(COPY.format(new=999, place="NULL", k2=keys[2]))
    result = check_audit_log((await read_diagnostics_of(settings)).audit)
    assert (result.level, "changed" in result.message) == ("warn", False)
    assert re.search(
        "entry 999 is not in the chain yet: it was written by a process of the previous version, or manually",
        result.message,
    )


OLD = "INSERT INTO audit (at, person, action, subject, detail, address) VALUES (1, 'p', 'test.old', 's', 'd', '')"


async def test_entries_of_the_previous_version_are_added_to_the_chain(
    empty_database_url: str, tmp_path: Path, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job adds them, also while processes of the previous version are running."""
    before = Settings(database=empty_database_url, data=tmp_path / "data")
    monkeypatch.setattr(audit, "LINK_BATCH", 3)
    await migrate(before)
    async with asking(before) as ask:
        for _ in range(5):
            await ask(OLD)
        await ask("UPDATE audit_head SET before = 5")  # the head as written by the migration that added the chain
        async with open_store(before, clock, "seat/0") as store:
            assert (await store.audit.verify()).has_unlinked
            await add(store, "new")
            chain = await store.audit.verify()
            assert (chain.entries, chain.broken, chain.has_unlinked) == (1, None, True)
            assert [await store.audit.link_older(7) for _ in range(3)] == [3, 2, 0]
            chain = await store.audit.verify()
            assert (chain.entries, chain.broken, chain.has_unlinked) == (6, None, False)
            await ask(OLD)
            broken = (await store.audit.verify()).broken
            assert broken and "is not in the chain" in broken.reason
            assert await store.audit.link_older(7) == 1
            chain = await store.audit.verify()
            assert (chain.entries, chain.broken, chain.has_unlinked) == (8, None, False)
            entries = await ask("SELECT subject, detail FROM audit WHERE action = 'audit.adopt'")
            assert entries == [("entries: 1", "7 to 7")]


async def test_forged_entry_of_the_previous_version_is_detected(store: Store, keys: list[int], sql: Sql) -> None:
    """Once all entries are linked, an unlinked entry is reported, even if its key is older than the chain."""
    assert await store.audit.link_older(7) == 0
    await sql(OLD.replace("(at", "(key, at").replace("(1", "(-5, 1"))
    broken = (await store.audit.verify()).broken
    assert broken and broken.reason == "entry -5 is not in the chain"
    assert await store.audit.link_older(7) == 1
    assert await sql("SELECT detail FROM audit WHERE action = 'audit.adopt'") == [("-5 to -5",)]
