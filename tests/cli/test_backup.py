from pathlib import Path

import pytest

from heliograph.storage.engine.local_files import Blobs

from .conftest import Run


def test_a_backup_is_a_paused_copy_with_attachments(run: Run, example: str, tmp_path: Path) -> None:
    run("apply", example)
    hash_ = Blobs(tmp_path / "heliograph-data" / "blobs").put(b"attachment")
    made = run("backup", "copies/monday")
    assert (made.code, made.err) == (0, "")
    assert "heliograph resume" in made.out
    assert Blobs(tmp_path / "copies" / "monday" / "blobs").get(hash_) == b"attachment"
    assert sorted(path.name for path in Path("copies/monday").iterdir()) == ["blobs", "heliograph.db"]
    assert sorted(path.name for path in Path("copies").iterdir()) == ["monday"]
    place = ("--database", "sqlite:///copies/monday/heliograph.db", "--data", "copies/monday")
    assert "paused (restored from a backup of 20" in run("doctor", *place).out
    assert "paused (" not in run("doctor").out
    run("resume", *place)
    assert "paused (" not in run("doctor", *place).out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("taken",), "taken exists already"),
        (("new", "--database", "sqlite:///none.db"), "there is no database sqlite:///none.db"),
        (("new", "--database", "postgresql://a:secret@b/c"), "pg_dump"),
    ],
)
def test_what_is_not_copied(run: Run, example: str, arguments: tuple[str, ...], said: str) -> None:
    run("apply", example)
    Path("taken").mkdir()
    ended = run("backup", *arguments)
    assert (ended.code, ended.out) == (1, "")
    assert said in ended.err
    assert not Path("new").exists()


def test_a_backup_that_breaks_off_leaves_nothing(run: Run, example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run("apply", example)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "monday")

    monkeypatch.setattr(Blobs, "copy_to", full)
    ended = run("backup", "copies/monday")
    assert ended.code == 1
    assert "the disk of monday is full" in ended.err
    assert list(Path("copies").iterdir()) == []
