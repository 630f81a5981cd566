"""Attachment files: durable under their hash before anything names them."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from heliograph.storage.engine.database import StoreUnavailable
from heliograph.storage.engine.local_files import Blobs


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs")


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]


def test_put_and_get(blobs: Blobs, tmp_path: Path) -> None:
    hash_ = blobs.put(b"content")
    assert blobs.get(hash_) == b"content"
    assert blobs.put(b"content") == hash_
    assert len(files(tmp_path)) == 1


def test_the_file_is_synced_before_its_name_and_the_folders_after(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, rename = os.fsync, os.rename

    def noted_fsync(descriptor: int) -> None:
        fsync(descriptor)
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        steps.append("folder synced" if is_folder else f"file of {os.fstat(descriptor).st_size} bytes synced")

    def noted_rename(source: Any, target: Any) -> None:
        rename(source, target)
        steps.append("renamed")

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "rename", noted_rename)
    blobs.put(b"content")
    assert steps == ["file of 7 bytes synced", "renamed", "folder synced", "folder synced"]


def test_what_came_from_elsewhere_is_synced_before_its_name(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it could be there and empty after a power failure, and would be taken for whole."""
    steps: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: steps.append("synced"))
    with blobs.coming("00" * 32) as file:
        file.write(b"content")
        assert steps == []
    assert steps == ["synced"]


@pytest.mark.parametrize("left", [b"", b"conten", b"content and more"])
def test_a_damaged_file_is_put_again(blobs: Blobs, tmp_path: Path, left: bytes) -> None:
    hash_ = blobs.put(b"content")
    files(tmp_path)[0].write_bytes(left)
    assert blobs.put(b"content") == hash_
    assert blobs.get(hash_) == b"content"


def test_a_failed_write_leaves_nothing(blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreUnavailable, match="No space"):
        blobs.put(b"content")
    assert files(tmp_path) == []


def test_a_folder_that_is_gone_is_an_outage(blobs: Blobs, tmp_path: Path) -> None:
    (tmp_path / "blobs").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreUnavailable):
        blobs.put(b"content")
    with pytest.raises(StoreUnavailable):
        blobs.drop("ab", 0)
    (tmp_path / "elsewhere").rename(tmp_path / "blobs")
    assert blobs.get(blobs.put(b"content")) == b"content"
