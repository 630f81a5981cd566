"""External validators from npm (`judges/package-lock.json`), installed once per checkout.

Tests that need a missing validator are skipped.
"""

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
    """Skip a test whose external validator is not available; in CI it fails (`conftest.py`)."""
    pytest.skip(f"{what}: {why}")


def install(folder: Path, what: str) -> Path:
    """Return the folder with all validators in its `node_modules`.

    `what`: named in the skip message if they are missing.
    """
    if shutil.which("npm") is None or shutil.which("node") is None:
        miss(what, "node and npm are not installed")
    try:
        (folder / "node_modules").symlink_to(judges())
    except (subprocess.SubprocessError, OSError) as error:
        miss(what, f"npm ci failed ({error})")
    return folder


def judges() -> Path:
    """Return the folder in which the validators are installed; wait if another process is installing them."""
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
