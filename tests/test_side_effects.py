"""A run of the tests that changes the machine fails and names the change."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OPENS_HOME = "import pathlib; pathlib.Path.home().chmod(0o755)"
LEAVES_PROCESS = "import subprocess; print('left', subprocess.Popen(['sleep', '3600'], stdout=-3, stderr=-3).pid)"


@pytest.mark.parametrize(
    ("change", "ended", "expected"),
    [
        ("pass", 0, ""),
        (OPENS_HOME, 1, "'0o40700' before, '0o40755' now"),
        (LEAVES_PROCESS, 1, "processes: still running: sleep 3600"),
    ],
)
def test_run_that_changes_the_machine_fails(tmp_path: Path, change: str, ended: int, expected: str) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (tmp_path / "conftest.py").write_text("from tests import side_effects\nside_effects.END_S = 0\n")
    (tmp_path / "test_it.py").write_text(f"def test_it():\n    {change}\n")
    environment = os.environ | {"HOME": str(home), "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    options = ["-c", os.devnull, "--rootdir", str(tmp_path), "-p", "tests.side_effects", "-s"]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    for pid in re.findall(r"left (\d+)", ran.stdout):
        os.kill(int(pid), signal.SIGKILL)
    assert (ran.returncode, "THIS RUN CHANGED THE MACHINE" in ran.stdout) == (ended, bool(ended)), ran.stdout
    assert expected in ran.stdout
