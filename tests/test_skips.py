"""In CI a missing validator fails the run; elsewhere its tests are skipped and counted in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = """
import pytest
def test_judged(): ...
@pytest.mark.parametrize("n", [1, 2])
def test_not_judged(n): pytest.skip("there is no judge")
"""


@pytest.mark.parametrize(
    ("ci", "told"),
    [
        ("", ["skipped 2: there is no judge", "1 passed, 2 skipped"]),
        ("true", ["there is no judge", "2 failed, 1 passed"]),
    ],
)
def test_missing_tool_is_reported_and_fails_in_ci(tmp_path: Path, ci: str, told: list[str]) -> None:
    (tmp_path / "conftest.py").write_text("from tests.skips import *\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    environment = os.environ | {"CI": ci, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(tmp_path), str(tmp_path)]
    ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert [word for word in told if word not in ran.stdout] == []
