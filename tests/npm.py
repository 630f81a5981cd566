"""Judges from npm, of `judges/package-lock.json`: installed once for a checkout, missed where that cannot be done."""

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

LOCKED = [Path(__file__).parent / "judges" / name for name in ("package.json", "package-lock.json")]
KEPT = Path(__file__).parents[1] / ".venv" / "judges"


def miss(what: str, why: str) -> NoReturn:
    """Skip what has no judge here, which fails in CI (`conftest.py`)."""
    pytest.skip(f"{what}: {why}")


def install(folder: Path, what: str) -> Path:
    """The folder, with every judge in its `node_modules`; `what` is said where they cannot be had."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        miss(what, "node and npm are not installed")
    try:
        (folder / "node_modules").symlink_to(judges())
    except (subprocess.SubprocessError, OSError) as error:
        miss(what, f"npm ci failed ({error})")
    return folder


def judges() -> Path:
    """Where the judges are installed. Who comes while another installs them waits."""
    kept = KEPT / hashlib.sha256(b"".join(file.read_bytes() for file in LOCKED)).hexdigest()[:16]
    kept.mkdir(parents=True, exist_ok=True)
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (done := kept / "done").exists():
            for file in LOCKED:
                shutil.copy(file, kept)
            command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(kept)]
            subprocess.run(command, check=True, capture_output=True, timeout=300)
            done.touch()
    return kept / "node_modules"
