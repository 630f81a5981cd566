"""What a process keeps in its data folder: the master secret, its seat, its address, and how far it has seen its
databases.
"""

import base64
import fcntl
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO

SEATS = 1000


class Seat:
    """A name for this process: taken again by its restart at once, never shared by two live processes.

    The lock ends with the process, also after kill -9; so whoever gets the seat next may take back its claims.
    """

    def __init__(self, data: Path) -> None:
        folder = data / "seats"
        folder.mkdir(parents=True, exist_ok=True)
        instance = _keep(data / "instance", lambda: secrets.token_hex(8))
        for number in range(SEATS):
            file = open(folder / str(number), "w")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                continue
            self._file: IO[str] = file
            self.name = f"{instance}/{number}"
            return
        raise RuntimeError(f"{folder}: all {SEATS} seats are taken")

    def leave(self) -> None:
        self._file.close()


def master_secret(data: Path, given: bytes | None) -> bytes:
    """The secret of the settings, or the one made on first start and kept in a file of mode 0600."""
    if given is not None:
        return given
    return base64.b64decode(_keep(data / "secret", lambda: base64.b64encode(secrets.token_bytes(32)).decode()))


def has_secret(data: Path, given: bytes | None) -> bool:
    """Whether `master_secret` would make none."""
    return given is not None or (data / "secret").exists()


def seen_numbers(data: Path) -> dict[int, int]:
    """By the name of a database, the greatest number of it that this folder was told."""
    return {
        int(file.name): int(text)
        for file in data.glob("witness/*")
        if file.name.isdecimal() and (text := file.read_text()).isdecimal()
    }


def keep_number(data: Path, database: int, number: int) -> None:
    """Not synced: a number that a power cut takes is missed by nobody, and one that was only begun is not read."""
    folder = data / "witness"
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"{database}.{number}.new"  # no two have the same number
    temporary.write_text(str(number))
    temporary.replace(folder / str(database))


def keep_address(data: Path, url: str) -> None:
    """Where the service of this folder was last started: commands beside it cannot know its port."""
    (data / "address").write_text(url)


def kept_address(data: Path) -> str | None:
    path = data / "address"
    return path.read_text().strip() if path.exists() else None


def derive(secret: bytes, purpose: str) -> bytes:
    """A key for one purpose, so that no two uses share one."""
    return hmac.new(secret, f"heliograph/{purpose}".encode(), hashlib.sha256).digest()


def _keep(path: Path, make: Callable[[], str]) -> str:
    """The text of the file; made once, whole and durable, also when two processes start together."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(make())
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
    return path.read_text().strip()
