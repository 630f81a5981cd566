"""Attachment files are durable under their hash before anything refers to them."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from heliograph.storage.engine.database import StoreUnavailable
from heliograph.storage.engine.local_files import LocalFiles


@pytest.fixture
def blobs(tmp_path: Path) -> LocalFiles:
    return LocalFiles(tmp_path / "blobs")


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]


def test_put_file_is_returned_by_get(blobs: LocalFiles, tmp_path: Path) -> None:
    hash_ = blobs.put(b"content")
    assert blobs.get(hash_) == b"content"
    assert blobs.put(b"content") == hash_
    assert len(files(tmp_path)) == 1


def test_put_syncs_the_file_before_renaming_and_the_folders_after(
    blobs: LocalFiles, monkeypatch: pytest.MonkeyPatch
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


def test_moved_file_is_synced_before_renaming(blobs: LocalFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the file could exist but be empty after a power failure, and be taken for complete."""
    steps: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: steps.append("synced"))
    with blobs.write_file("00" * 32) as file:
        file.write(b"content")
        assert steps == []
    assert steps == ["synced"]


@pytest.mark.parametrize("left", [b"", b"conten", b"content and more"])
def test_damaged_file_is_replaced_by_put(blobs: LocalFiles, tmp_path: Path, left: bytes) -> None:
    hash_ = blobs.put(b"content")
    files(tmp_path)[0].write_bytes(left)
    assert blobs.put(b"content") == hash_
    assert blobs.get(hash_) == b"content"


def test_failed_put_leaves_no_file(blobs: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreUnavailable, match="No space"):
        blobs.put(b"content")
    assert files(tmp_path) == []


def test_missing_folder_is_an_outage(blobs: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "blobs").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreUnavailable):
        blobs.put(b"content")
    with pytest.raises(StoreUnavailable):
        blobs.delete("ab", 0)
    (tmp_path / "elsewhere").rename(tmp_path / "blobs")
    assert blobs.get(blobs.put(b"content")) == b"content"
