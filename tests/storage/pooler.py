"""The real PgBouncer in transaction mode, in front of the tests' PostgreSQL."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.npm import miss
from tests.service import free_port, until

SESSIONS = 3  # sessions of the server: fewer than the clients


@contextmanager
def pgbouncer(url: str, sessions: int = SESSIONS) -> Iterator[str]:
    """Return the URL of the same database through PgBouncer."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        miss("PgBouncer", "pgbouncer is not installed")
    parts = urlsplit(url)
    sockets, port = parse_qs(parts.query)["host"][0], free_port()
    owner = os.stat(sockets).st_uid  # PgBouncer refuses to run as root
    with tempfile.TemporaryDirectory(prefix="heliograph-pgbouncer-") as folder:
        config = Path(folder) / "pgbouncer.ini"
        config.write_text(
            f"[databases]\n* = host={sockets} user=postgres\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
            f"pool_mode = transaction\ndefault_pool_size = {sessions}\nlogfile = {folder}/log\n"
        )
        shutil.chown(folder, owner)
        running = subprocess.Popen([program, "-q", str(config)], user=owner, stdout=subprocess.DEVNULL)
        try:
            until(lambda: answers(port))
            yield f"postgresql://postgres@127.0.0.1:{port}{parts.path}?sslmode=disable"
        finally:
            running.send_signal(signal.SIGKILL)
            running.wait()


def answers(port: int) -> bool:
    with socket.socket() as requested:
        return requested.connect_ex(("127.0.0.1", port)) == 0
