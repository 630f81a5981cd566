"""Installs the other programs of the SMS benchmark from their registries, if possible."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mail_install import Missing, run

JASMIN = Path(tempfile.gettempdir()) / "heliograph-bench-jasmin"
JASMIN_LOCK = Path("/tmp/jasmind.lock")  # Jasmin's path is fixed
PYTHONS = ("python3.11", "python3.12", "python3.10", sys.executable)  # newer versions cannot build all packages
RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # the command on the PATH uses its own user and a fixed folder
POLICY = Path("/usr/sbin/policy-rc.d")  # Debian's packages call it before they start daemons


def install_kannel() -> None:
    install_packages({"kannel": "/usr/sbin/bearerbox"})


def install_jasmin() -> None:
    if JASMIN_LOCK.exists():
        raise Missing(f"another one runs, or one that was killed has left {JASMIN_LOCK}")
    install_packages({"rabbitmq-server": RABBITMQ, "redis-server": "/usr/bin/redis-server"})
    if (JASMIN / "bin/jasmind.py").exists():
        return
    print("installing Jasmin (once) …", flush=True)
    why = []
    for python in filter(shutil.which, dict.fromkeys(PYTHONS)):
        try:
            run([python, "-m", "venv", "--clear", str(JASMIN)])
            run([str(JASMIN / "bin/pip"), "install", "jasmin", "setuptools<81"])  # Jasmin imports pkg_resources
            return
        except Missing as error:
            why.append(f"{python}: {error}")
    raise Missing("; ".join(why))


def install_packages(programs: dict[str, str]) -> None:
    """Install Debian's packages of missing programs; none of them starts a daemon."""
    packages = [package for package, program in programs.items() if not Path(program).exists()]
    if not packages:
        return
    if os.geteuid() or not shutil.which("apt-get"):
        raise Missing(f"not installed: {', '.join(packages)}; only root on Debian can do that here")
    print(f"installing {' and '.join(packages)} (once) …", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    fetch = ["apt-get", "install", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=60", *packages]
    with daemons_kept_down():
        try:
            run(fetch, env=environment)
        except Missing:  # the package lists may be outdated or missing
            run(["apt-get", "update"], env=environment)
            run(fetch, env=environment)


@contextmanager
def daemons_kept_down() -> Iterator[None]:
    if POLICY.exists():  # the machine has its own file
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()
