"""`--workers` runs every test once, reports the same as pytest, and fails a run with a dead or hung worker."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = """
import os, pytest, time, warnings
@pytest.fixture(scope="session", autouse=True)
def ended(tmp_path_factory):
    yield
    open(f"{os.path.dirname(__file__)}/ended", "a").write(f"{os.getpid()}\\n")
@pytest.mark.parametrize("n", range(3))
def test_passes(n, tmp_path): assert list(tmp_path.iterdir()) == []
"""
MORE = """
def test_fails(): assert [1, 2] == [1, 3]
def test_is_skipped(): pytest.skip("there is no judge")
def test_warns(): warnings.warn("it is old", DeprecationWarning)
"""
APART = """
@pytest.mark.apart
@pytest.mark.parametrize("n", range(2))
def test_meets(n):
    there = os.path.dirname(__file__)
    open(f"{there}/{n}", "w").close()
    end = time.monotonic() + 60
    while not os.path.exists(f"{there}/{1 - n}"):
        assert time.monotonic() < end, "one worker has both"
        time.sleep(0.01)
"""
ENDS_BADLY = """
@pytest.fixture(scope="session", autouse=True)
def badly():
    yield
    raise OSError("it does not end")
"""
HANGS = "def test_hangs(): time.sleep(3600)\n"
DIES = "def test_dies(): os._exit(1)\n"


def run(folder: Path, *, conftest: str = "", **files: str) -> str:
    (folder / "conftest.py").write_text(f"from tests.workers import *\n{conftest}")
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(TESTS + text)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(folder), "--workers", "2"]
    return subprocess.run([*command, str(folder)], env=environment, cwd=folder, capture_output=True, text=True).stdout


def test_workers_report_the_same_as_one_process(tmp_path: Path) -> None:
    output = run(tmp_path, one="", two=MORE, three="")
    assert "1 failed, 10 passed, 1 skipped, 1 warning" in output
    assert "test_two.py::test_warns" in output and "DeprecationWarning: it is old" in output
    assert "At index 1 diff: 2 != 3" in output and "[100%]" in output
    assert output.index("FAILED test_two.py::test_fails (call)") < output.index("[100%]")
    assert len((tmp_path / "ended").read_text().split()) == 3  # each file's once; a busy machine's, all by one worker


def test_workers_run_tests_marked_apart_one_by_one(tmp_path: Path) -> None:
    assert "5 passed" in run(tmp_path, one=APART)


def test_workers_report_errors_at_session_end(tmp_path: Path) -> None:
    output = run(tmp_path, one=ENDS_BADLY)
    assert "3 passed, 1 error" in output and "OSError: it does not end" in output


def test_workers_report_the_test_of_a_dead_worker(tmp_path: Path) -> None:
    assert "a worker died after test_two.py::test_passes[2]" in run(tmp_path, two=DIES)


def test_workers_end_a_run_in_which_a_test_hangs(tmp_path: Path) -> None:
    output = run(tmp_path, conftest="import tests.workers\ntests.workers.HUNG_S = 3", one="", two=HANGS)
    assert "no test ended in 3 s: a test hangs after test_two.py::test_passes[2]" in output
