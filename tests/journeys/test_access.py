"""Who can read the files of a running service."""

import os
import stat
from pathlib import Path

import pybase64

from tests.service import Service

FILE = {"filename": "a.zip", "content_type": "application/zip", "content": pybase64.b64encode(bytes(300_000)).decode()}


def test_files_of_the_service_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with Service(f"sqlite:///{tmp_path / 'state' / 'heliograph.db'}", tmp_path / "data") as service:
            service.apply()
            service.start()
            sent = {"from": "hello@acme.test", "to": "delivered@simulator.test", "subject": "Hi", "text": "Hi"}
            assert service.post("/v1/emails", sent | {"attachments": [FILE]}).status == 202
            assert service.run("backup", str(tmp_path / "copy")).returncode == 0
            made = {path.relative_to(tmp_path).as_posix(): path for path in tmp_path.rglob("*")}
            assert {"state/heliograph.db", "state/heliograph.db-wal", "data/secret", "data"} < made.keys()
            assert list((tmp_path / "data" / "blobs").glob("??/*"))
            modes = {name: stat.S_IMODE(path.stat().st_mode) for name, path in made.items() if path.exists()}
            assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
    finally:
        os.umask(before)
