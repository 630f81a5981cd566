"""Judges from npm: installed by name, and missed where that cannot be done."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest


def miss(what: str, why: str) -> NoReturn:
    """Skip what has no judge here; in CI fail."""
    if os.environ.get("CI"):
        pytest.fail(f"{why}: in CI nothing is skipped")
    pytest.skip(f"{what}: {why}")


def install(package: str, folder: Path, what: str) -> Path:
    """The folder with the package in it; `what` is said where it cannot be had."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        miss(what, "node and npm are not installed")
    try:
        subprocess.run(
            [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), package],
            check=True,
            capture_output=True,
            timeout=180,
        )
    except (subprocess.SubprocessError, OSError) as error:
        miss(what, f"npm install {package} failed ({error})")
    return folder
