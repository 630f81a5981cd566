"""Installs the other programs of the mail benchmark from their registries, if possible."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import msgspec

PROGRAMS = ("postfix", "smtp-sink", "smtp-source", "opendkim")
PACKAGES = ("postfix", "opendkim")
HARAKA = Path(tempfile.gettempdir()) / "heliograph-bench-haraka"
LIMIT_S = 180

# The newest permitted libmime depends on packages that are missing in some registries.
HARAKA_PACKAGE = {
    "private": True,
    "dependencies": {"Haraka": "^3.3", "haraka-plugin-dkim": "^1.3"},
    "overrides": {"libmime": "5.4.3"},
}


class Missing(Exception):
    """Raised if a program cannot be installed here; the message says why."""


def install_postfix() -> None:
    if all(map(shutil.which, PROGRAMS)):
        return
    if os.geteuid() or not shutil.which("apt-get"):
        raise Missing(f"{', '.join(PROGRAMS)} are not all here, and only root on Debian can install them")
    print(f"installing {' and '.join(PACKAGES)} (once) …", flush=True)
    # Without a configuration, the package starts no daemon and sends nothing.
    answer = b"postfix postfix/main_mailer_type select No configuration\n"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run(["debconf-set-selections"], input=answer)
    fetch = ["apt-get", "install", "-y", "--no-install-recommends", *PACKAGES]
    try:
        run(fetch, env=environment)
    except Missing:  # perhaps its lists are old or were never fetched
        run(["apt-get", "update"], env=environment)
        run(fetch, env=environment)


def install_haraka() -> None:
    if (HARAKA / "node_modules/haraka-plugin-dkim/index.js").exists():
        return
    if not (shutil.which("node") and shutil.which("npm")):
        raise Missing("node and npm are not installed")
    print("installing Haraka (once) …", flush=True)
    HARAKA.mkdir(exist_ok=True)
    (HARAKA / "package.json").write_bytes(msgspec.json.encode(HARAKA_PACKAGE))
    run(["npm", "install", "--no-audit", "--no-fund", "--omit=optional"], cwd=HARAKA)


def run(command: list[str], **options: Any) -> str:
    """Run a command and return its output; raise Missing if it fails."""
    try:
        done: subprocess.CompletedProcess[bytes] = subprocess.run(
            command, check=True, capture_output=True, timeout=LIMIT_S, **options
        )
    except (subprocess.SubprocessError, OSError) as error:
        said = (getattr(error, "stderr", b"") or b"").decode(errors="replace").strip().splitlines()
        raise Missing(f"`{' '.join(command[:3])}` failed: {said[-1] if said else error}") from None
    return done.stdout.decode(errors="replace")
