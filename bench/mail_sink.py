"""Postfix's smtp-sink: accepts and counts every mail, and stores it if told to."""

import os
import re
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Self

START_S = 5.0
BACKLOG = "1000"

_COUNT = re.compile(rb"mesg=([0-9]+)")
_OWN = re.compile(rb"(?:X-[^\n]*\n)+Received: [^\n]*\n(?:\t[^\n]*\n)+")  # written before a stored mail


class Sink:
    def __init__(self, port: int, dump: Path | None = None) -> None:
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        kept = ["-d", f"{dump}/"] if dump else []
        self._port = port
        self._command = ["smtp-sink", "-c", *user, *kept, f"127.0.0.1:{port}", BACKLOG]
        self._changed = threading.Condition()
        self._count, self._at = 0, 0.0

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, start_new_session=True)
        threading.Thread(target=self._read, daemon=True).start()
        deadline = time.monotonic() + START_S
        with socket.socket() as probe:
            while probe.connect_ex(("127.0.0.1", self._port)):
                if time.monotonic() > deadline:
                    self.__exit__()
                    raise SystemExit("smtp-sink does not take connections")
                time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def wait_for(self, count: int, limit_s: float) -> float:
        """Return when the mail with this number arrived, on the machine's monotonic clock."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._count >= count, limit_s):
                raise SystemExit(f"after {limit_s:.0f} s only {self._count} of {count} mails have come to the sink")
            return self._at

    def _read(self) -> None:
        assert self._process.stdout
        rest = b""
        while came := os.read(self._process.stdout.fileno(), 1 << 20):
            now = time.monotonic()
            whole, _, rest = (rest + came).rpartition(b"\r")
            if counts := _COUNT.findall(whole):
                with self._changed:
                    self._count, self._at = int(counts[-1]), now
                    self._changed.notify_all()


def read_dump(path: Path) -> bytes:
    """Return the mail as received: the sink stores it with bare line feeds and an additional empty line."""
    kept = path.read_bytes()
    own = _OWN.match(kept)
    if not own:
        raise SystemExit(f"{path} is no mail that smtp-sink kept:\n{kept[:500]!r}")
    return kept[own.end() : -1].replace(b"\n", b"\r\n")
