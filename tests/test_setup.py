"""How the Makefile sets up `.venv`: one line with the time it took, and a cause that can be acted on if it fails."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCK = "".join(f"{name}==1.0 \\\n    --hash=sha256:{name}\n" for name in "abc")
PIP = """#!/bin/sh
echo "$@" >> arguments
mkdir -p .venv/bin
cp "$0" .venv/bin/python
for word; do :; done
[ ! -f "$word" ] || mv "$word" "half-$(sed 's/=.*//;q' "$word")"
{pip}
"""


def set_up(folder: Path, python: str, *words: str, uv: str = "") -> "subprocess.CompletedProcess[str]":
    """Run deploy/venv in a checkout with a fake Python and, optionally, a fake uv."""
    (folder / "deploy").mkdir()
    shutil.copy(ROOT / "deploy" / "venv", folder / "deploy" / "venv")
    (folder / "one.lock").write_text(LOCK)
    programs = folder / "programs"
    programs.mkdir()
    for name, text in {"python3": python, "uv": uv}.items():
        if text:
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "PYTHON": "python3", "HOME": str(folder)}
    environment |= {} if uv else {"UV": "no"}
    command = ["sh", str(folder / "deploy" / "venv"), "Setting up", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("has_new_pip", [True, False])
def test_setup_prints_one_line_with_its_duration(tmp_path: Path, has_new_pip: bool) -> None:
    python = PIP.format(pip="echo a lot of text" if has_new_pip else "case $* in *--python*) exit 1;; esac")
    done = set_up(tmp_path, python, "one.lock")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"Setting up … done in \d+ s\n", done.stdout)
    installs = [line for line in (tmp_path / "arguments").read_text().splitlines() if " install " in line]
    for line in installs:
        assert line.startswith("-m pip --python .venv/bin/python install " if has_new_pip else "-m pip install ")
        assert {"--require-hashes", "--no-deps", "--no-compile"} <= {*line.split()}
    halves = [(tmp_path / f"half-{name}").read_text() for name in "ab"]  # named by their first package
    assert len(installs) == 2 and sorted("".join(halves)) == sorted(LOCK)
    assert all(half.count("==") == half.count("--hash") for half in halves)


def test_uv_is_used_if_installed_and_pip_if_uv_fails(tmp_path: Path) -> None:
    for name, status in (("works", 0), ("fails", 1)):
        folder = tmp_path / name
        folder.mkdir()
        uv = f'#!/bin/sh\necho "$@" > by-uv\nexit {status}\n'
        done = set_up(folder, PIP.format(pip="true"), "one.lock", uv=uv)
        assert done.returncode == 0, done.stdout
        assert "--require-hashes --no-deps" in (folder / "by-uv").read_text()
        assert (" install " in (folder / "arguments").read_text()) == (name == "fails")


@pytest.mark.parametrize(
    ("printed", "advice"),
    [
        ("OSError: [Errno 28] No space left on device", "The disk is full"),
        ("Error: [Errno 13] Permission denied: .venv", "is read-only for"),
        ("Error: [Errno 30] Read-only file system: .venv", "is read-only for"),
        ("ensurepip is not available", "apt install python3-venv"),
        ("Temporary failure in name resolution", "package index cannot be reached"),
        ("Something else", "Something else"),
    ],
)
def test_failed_set_up_names_cause_and_fix(tmp_path: Path, printed: str, advice: str) -> None:
    done = set_up(tmp_path, f"#!/bin/sh\necho '{printed}' >&2\nexit 1\n", "one.lock")
    assert done.returncode == 1
    first, *others = done.stdout.splitlines()
    assert first == "Setting up … failed"
    assert advice in others[0] and len(others) == 1


def test_missing_wheel_is_reported_on_one_line(tmp_path: Path) -> None:
    done = set_up(tmp_path, PIP.format(pip="case $* in *only-binary*) exit 1;; esac"), "--wheels", "one.lock")
    assert (done.returncode, done.stdout) == (3, "Setting up … not available\n")


def test_make_works_without_bash_and_column(tmp_path: Path) -> None:
    for name in ("make", "sh", "awk"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    shown = subprocess.check_output(["make"], cwd=ROOT, text=True, env=os.environ | {"PATH": str(tmp_path)})
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text("utf-8"), re.M)
    assert re.findall(r"^  make ([a-z-]+) +\S", shown, re.M) == targets
    scripts = [path for path in (ROOT / "deploy").iterdir() if path.is_file() and path.read_bytes().startswith(b"#!")]
    shells = {path.name: path.read_text("utf-8").splitlines()[0] for path in scripts}
    assert {"dist", "image", "venv"} <= shells.keys()
    assert {name for name, line in shells.items() if "bash" in line} == set()
