"""Attachment files above 256 KB on the local disk, named by hash.

A file is written and synced before the transaction that refers to it.
"""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO

from heliograph.storage.engine.database import StoreUnavailable

FRESH_MS = 3_600_000  # a file younger than this may belong to a message that is not committed yet


@contextmanager
def _or_unavailable() -> Iterator[None]:
    """Raise StoreUnavailable if the disk is full, the folder is missing or file descriptors run out (ADR 0018)."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"attachment files: {error}") from error


class LocalFiles:
    """Content-addressed files in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @_or_unavailable()
    def put(self, content: bytes) -> str:
        """Store the bytes durably and return their hash. Blocks the thread: do not call it on the event loop."""
        hash_ = hashlib.sha256(content).hexdigest()
        target = self._path(hash_)
        if self.touch(hash_) and self.size(hash_) == len(content):  # a damaged file is written again
            return hash_
        with self.write_file(hash_) as file:
            file.write(content)
        for folder in (target.parent, self._folder):
            sync_folder(folder)
        return hash_

    @_or_unavailable()
    def touch(self, hash_: str) -> bool:
        """Return whether the file exists, and reset its age so that `delete` keeps the file."""
        target = self._path(hash_)
        with self._lock_folder():
            if not target.exists():
                return False
            os.utime(target)
            return True

    @contextmanager
    def write_file(self, hash_: str) -> Iterator[IO[bytes]]:
        """Yield a temporary file for the content with this hash; then sync and rename it to its final path."""
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
        """Return the size of a file in bytes; 0 if not found."""
        try:
            return self._path(hash_).stat().st_size
        except OSError:
            return 0

    def list_old(self, now: int) -> list[str]:
        """Return the hashes of files older than FRESH_MS, to which no uncommitted message can refer."""
        return [path.name for path in self._folder.glob("??/*") if _is_old(path, now)]

    @_or_unavailable()
    def delete(self, hash_: str, now: int) -> None:
        """Delete a file that no message refers to, unless the file was stored again in the meantime."""
        path = self._path(hash_)
        with self._lock_folder():
            if _is_old(path, now):
                path.unlink()

    def copy_to(self, other: "LocalFiles") -> None:
        """Copy all files durably to `other`, except those of expired messages that are deleted meanwhile."""
        for path in self._folder.glob("??/*"):
            with suppress(FileNotFoundError):
                other.put(path.read_bytes())

    @contextmanager
    def _lock_folder(self) -> Iterator[None]:
        """Hold the folder's lock, so that no thread or process changes a file between check and action."""
        with open(self._folder / "lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _path(self, hash_: str) -> Path:
        return self._folder / hash_[:2] / hash_


def _is_old(path: Path, now: int) -> bool:
    try:
        return path.stat().st_mtime * 1000 <= now - FRESH_MS
    except FileNotFoundError:  # another process deleted the file first
        return False


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
