"""Attachment files above 256 KB: written, synced and named by their hash before the transaction that needs them."""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO

from heliograph.storage.engine.database import StoreUnavailable

FRESH_MS = 3_600_000  # a file this recent may belong to a message that is about to be written


@contextmanager
def _or_unavailable() -> Iterator[None]:
    """Treat a full disk, a lost folder or a lack of descriptors as an outage like the database's (ADR 0018)."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"attachment files: {error}") from error


class Blobs:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @_or_unavailable()
    def put(self, content: bytes) -> str:
        """Keep the bytes durably and return their hash; blocking, so call it off the event loop."""
        hash_ = hashlib.sha256(content).hexdigest()
        target = self._path(hash_)
        if self.touch(hash_) and self.size(hash_) == len(content):  # a damaged one is put again
            return hash_
        with self.coming(hash_) as file:
            file.write(content)
        for folder in (target.parent, self._folder):
            sync_folder(folder)
        return hash_

    @_or_unavailable()
    def touch(self, hash_: str) -> bool:
        """Tell whether it is here; then it is fresh again, and `drop` leaves it alone."""
        target = self._path(hash_)
        with self._locked():
            if not target.exists():
                return False
            os.utime(target)
            return True

    @contextmanager
    def coming(self, hash_: str) -> Iterator[IO[bytes]]:
        """Takes the bytes of this hash; the file has its name when they are all there, on the disk."""
        target = self._path(hash_)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.rename(file.name, target)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise

    def open(self, hash_: str) -> BinaryIO:
        return open(self._path(hash_), "rb")

    def get(self, hash_: str) -> bytes:
        return self._path(hash_).read_bytes()

    def size(self, hash_: str) -> int:
        """Return its size in bytes; 0 when it is gone."""
        try:
            return self._path(hash_).stat().st_size
        except OSError:
            return 0

    def old(self, now: int) -> list[str]:
        """Return the files that were put a while ago: if no message needs them now, none will."""
        return [path.name for path in self._folder.glob("??/*") if _is_old(path, now)]

    @_or_unavailable()
    def drop(self, hash_: str, now: int) -> None:
        """Remove a file that no message needs, unless it was put again meanwhile."""
        path = self._path(hash_)
        with self._locked():
            if _is_old(path, now):
                path.unlink()

    def copy_to(self, other: "Blobs") -> None:
        """Copy all files durably; what is dropped meanwhile belongs to messages that ended long ago."""
        for path in self._folder.glob("??/*"):
            with suppress(FileNotFoundError):
                other.put(path.read_bytes())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold a lock: between looking at a file and deciding about it, no other thread or process does the same."""
        with open(self._folder / "lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _path(self, hash_: str) -> Path:
        return self._folder / hash_[:2] / hash_


def _is_old(path: Path, now: int) -> bool:
    try:
        return path.stat().st_mtime * 1000 <= now - FRESH_MS
    except FileNotFoundError:  # another process was faster
        return False


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
