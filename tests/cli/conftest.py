import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from heliograph.cli.main import main

Run = Callable[..., "Result"]


class Result(msgspec.Struct, frozen=True):
    code: int
    out: str
    err: str


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command in an empty folder, without settings in the environment."""
    monkeypatch.chdir(tmp_path)
    for variable in os.environ:
        if variable.startswith("HELIOGRAPH_"):
            monkeypatch.delenv(variable)

    def command(*arguments: str) -> Result:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert isinstance(ended.value.code, int)
        return Result(ended.value.code, *capsys.readouterr())

    return command


@pytest.fixture
def example(tmp_path: Path) -> str:
    """Write the example of contract 14 to the working folder."""
    path = Path(__file__).parents[1] / "domain" / "setup_example.toml"
    (tmp_path / "setup.toml").write_text(path.read_text())
    return "setup.toml"
