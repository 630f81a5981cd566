from pathlib import Path

import pytest

from heliograph.storage.engine.local_files import LocalFiles

from .conftest import Run


def test_a_backup_is_a_paused_copy_with_attachments(run: Run, example: str, tmp_path: Path) -> None:
    run("apply", example)
    hash_ = LocalFiles(tmp_path / "heliograph-data" / "blobs").put(b"attachment")
    result = run("backup", "copies/monday")
    assert (result.code, result.err) == (0, "")
    assert "heliograph resume" in result.out
    assert LocalFiles(tmp_path / "copies" / "monday" / "blobs").get(hash_) == b"attachment"
    assert sorted(path.name for path in Path("copies/monday").iterdir()) == ["blobs", "heliograph.db"]
    assert sorted(path.name for path in Path("copies").iterdir()) == ["monday"]
    copy_flags = ("--database", "sqlite:///copies/monday/heliograph.db", "--data", "copies/monday")
    assert "paused (restored from a backup of 20" in run("doctor", *copy_flags).out
    assert "paused (" not in run("doctor").out
    run("resume", *copy_flags)
    assert "paused (" not in run("doctor", *copy_flags).out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("taken",), "taken already exists"),
        (("new", "--database", "sqlite:///none.db"), "there is no database sqlite:///none.db"),
        (("new", "--database", "postgresql://a:secret@b/c"), "pg_dump"),
    ],
)
def test_invalid_backups_are_refused(run: Run, example: str, arguments: tuple[str, ...], said: str) -> None:
    run("apply", example)
    Path("taken").mkdir()
    ended = run("backup", *arguments)
    assert (ended.code, ended.out) == (1, "")
    assert said in ended.err
    assert not Path("new").exists()


def test_an_interrupted_backup_leaves_no_files(run: Run, example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run("apply", example)

    def disk_full(*_: object) -> None:
        raise OSError(28, "No space left on device", "monday")

    monkeypatch.setattr(LocalFiles, "copy_to", disk_full)
    ended = run("backup", "copies/monday")
    assert ended.code == 1
    assert "the disk of monday is full" in ended.err
    assert list(Path("copies").iterdir()) == []
