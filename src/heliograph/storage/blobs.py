"""Attachment files above 256 KB: written, synced and named by their hash before the transaction that needs them."""

import hashlib
import os
import tempfile
from pathlib import Path


class Blobs:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, content: bytes) -> str:
        """Keep the bytes durably and answer their hash; blocking, so call it off the event loop."""
        hash_ = hashlib.sha256(content).hexdigest()
        target = self._path(hash_)
        if target.exists():
            os.utime(target)  # fresh again: housekeeping leaves it alone until its message is written
            return hash_
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
            try:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                os.rename(file.name, target)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
        for folder in (target.parent, self._folder):
            sync_folder(folder)
        return hash_

    def get(self, hash_: str) -> bytes:
        return self._path(hash_).read_bytes()

    def drop(self, hash_: str) -> None:
        self._path(hash_).unlink(missing_ok=True)

    def _path(self, hash_: str) -> Path:
        return self._folder / hash_[:2] / hash_


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
