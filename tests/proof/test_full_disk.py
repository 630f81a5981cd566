"""P13: the disk is full or breaks. Never a 202 without its row, never two debits, and it mends by itself."""

import asyncio
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from heliograph.storage.engine import sqlite
from heliograph.storage.engine.local_files import LocalFiles
from heliograph.storage.engine.migrate import migrate_sqlite
from heliograph.storage.engine.sqlite import BUSY_MS, SqliteDatabase
from heliograph.storage.setup import NewTeam
from heliograph.storage.store import StoreUnavailable, make_store
from tests.clocks import TestClock
from tests.journeys.load import Load, check_all_arrived
from tests.proof.size import report, size
from tests.service import Service, until
from tests.setup_helpers import set_up
from tests.storage.samples import message, retry_key

BREAKS = size("P13 breaks")  # the n-th write or sync fails, n = 1 … BREAKS
PRICE, CREDIT = 10, 1_000_000


class Disk(apsw.VFS):
    """A disk whose n-th write or sync from now on fails, once or until it is repaired."""

    def __init__(self) -> None:
        super().__init__("breaking", "")
        self.left = -1
        self.for_good = False
        self.failed = 0

    def xOpen(self, name: Any, flags: Any) -> "DiskFile":
        return DiskFile(self, name, flags)

    def tick(self, error: type[Exception]) -> None:
        if self.left > 0:
            self.left -= 1
        if self.left == 0:
            self.failed += 1
            self.left = 0 if self.for_good else -1
            raise error("the test says so")


class DiskFile(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: Any) -> None:
        super().__init__("", name, flags)
        self._disk = disk

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.tick(apsw.FullError)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._disk.tick(apsw.IOError)
        super().xSync(flags)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk()

    def open_breaking(path: Path, **_: bool) -> apsw.Connection:
        connection = apsw.Connection(str(path), vfs="breaking")
        connection.set_busy_timeout(BUSY_MS)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=20"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        return connection

    monkeypatch.setattr(sqlite, "open_sqlite", open_breaking)
    yield disk
    disk.unregister()


@pytest.mark.anyio
@pytest.mark.parametrize("for_good", [False, True], ids=["once", "until repaired"])
async def test_response_is_correct_whichever_write_fails(tmp_path: Path, disk: Disk, for_good: bool) -> None:
    path, clock = tmp_path / "breaking.db", TestClock()
    migrate_sqlite(path)
    store = make_store(SqliteDatabase(path), LocalFiles(tmp_path / "blobs"), clock, "seat/0")
    await set_up(store, new_teams=[NewTeam(1, CREDIT)])
    sent = refused = 0
    for n in range(1, BREAKS + 1):
        disk.left, disk.for_good = n, for_good
        while disk.left > 0:
            items = [message(clock, price=PRICE, idempotency_key=retry_key(f"{sent}/{i}")) for i in range(2)]
            results = await asyncio.gather(*(store.messages.accept(item) for item in items), return_exceptions=True)
            sent += len(items)
        disk.left = -1
        for item, result in zip(items, results, strict=True):
            assert isinstance(result, StoreUnavailable) or await store.messages.get(1, item.id)
            refused += isinstance(result, StoreUnavailable)
        # Mended, the same keys work. A refusal may come after the commit (a checkpoint failed): then it replays too.
        for item, result in zip(items, results, strict=True):
            again = await store.messages.accept(message(clock, price=PRICE, idempotency_key=item.idempotency_key))
            assert again.replayed or isinstance(result, StoreUnavailable)
    account = await store.ledger.get_account(1)
    await store.close()
    assert disk.failed >= BREAKS
    assert refused
    assert (account.available, account.held) == (CREDIT - sent * PRICE, sent * PRICE)
    books = apsw.Connection(str(path))
    assert books.execute("SELECT count(*) FROM message").get == sent
    assert books.execute("SELECT count(*), sum(amount) FROM ledger WHERE kind = 'hold'").fetchall() == [
        (sent, sent * PRICE)
    ]
    assert books.execute("PRAGMA integrity_check").get == "ok"
    books.close()
    kind = "until it was repaired" if for_good else "once"
    report("P13", f"each of {BREAKS} writes and syncs failed {kind}: {sent} sent, {refused} refused, accounts exact")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_full_disk_under_load(service: Service) -> None:
    """No file may grow any more: the service refuses, answers reads, and goes on when there is room again."""
    process = service.processes[-1]
    wal = service.database.removeprefix("sqlite:///") + "-wal"
    with Load(service) as load:
        load.more(30)
        whole = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (min(os.path.getsize(wal), 64 * 1024), whole[1]))
        until(lambda: any(answer.status == 503 for answer in load.refused))
        first = next(iter(load.accepted.values()))
        assert service.get(f"/v1/emails/{first}").status == 200
        until(lambda: service.get("/readyz").status == 503)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, whole)
        until(lambda: service.get("/readyz").status == 200)
        load.more(30)
    assert {(a.status, a.code) for a in load.refused} == {(503, "service_unavailable")}
    assert all("retry-after" in a.headers for a in load.refused)
    check_all_arrived(service.database, load.accepted)
