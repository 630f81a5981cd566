"""Units of Type=notify: only the parent process reports that the service is ready, alive and stopping."""

import asyncio
import queue
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from heliograph.runtime.systemd import feed_watchdog
from tests.service import PATIENCE_S, Service

Words = queue.Queue[tuple[str, int]]


@pytest.mark.parametrize("processes", ["1", "2"])
def test_systemd_is_notified_of_ready_watchdog_and_stopping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: str
) -> None:
    words: Words = queue.Queue()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        threading.Thread(target=listen, args=(heard, words), daemon=True).start()
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "100000")
        with Service(f"sqlite:///{tmp_path / 'heliograph.db'}", tmp_path / "data") as service:
            process = service.start("all", 0, "--processes", processes)
            output = [*until("READY=1", words), *until("WATCHDOG=1", words)]
            assert service.stop() == 0
            output += until("STOPPING=1", words)
    assert {pid for _, pid in output} == {process.pid}
    assert [word for word, _ in output if word != "WATCHDOG=1"] == ["READY=1", "STOPPING=1"]


@pytest.mark.anyio
async def test_watchdog_does_not_block_the_event_loop_when_nobody_reads_its_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "2000")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unread:
        unread.bind(str(tmp_path / "notify"))
        unread.setblocking(False)
        task = asyncio.create_task(feed_watchdog())
        fill_queue(tmp_path / "notify")
        for _ in range(5):  # the watchdog is fed meanwhile
            await asyncio.sleep(0.002)
        task.cancel()
        assert unread.recv(100) == b"WATCHDOG=1"


def fill_queue(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, suppress(BlockingIOError):
        sender.setblocking(False)
        while True:
            sender.sendto(b"WATCHDOG=1", str(path))


def listen(heard: socket.socket, words: Words) -> None:
    while True:
        data, [(_, _, credentials)], _, _ = heard.recvmsg(100, 100)
        words.put((data.decode(), int.from_bytes(credentials[:4], "little")))
        if data == b"STOPPING=1":
            return


def until(word: str, words: Words) -> list[tuple[str, int]]:
    """Return the messages up to the given one, each with its sender."""
    output = [words.get(timeout=PATIENCE_S)]
    while output[-1][0] != word:
        output.append(words.get(timeout=PATIENCE_S))
    return output
