"""A machine in a folder: bubblewrap gives it its own root, users, /etc and /var, processes and loopback interface.

Inside, `inside.py` runs the commands, and replaces `sudo`, `systemctl` and `journalctl`: processes that they start are
confined as their unit says. `heliograph` is forked from a process that has imported it, except for commands that start
processes of their own.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.npm import miss

ROOT = Path(__file__).parents[2]
HERE = "/srv/heliograph"  # the working folder inside: a copy of the repository, as far as operators need it
INSIDE = f"{sys.executable} -IS {ROOT}/tests/confined/inside.py"
STUBS = "/stubs"
PROGRAMS = ("sudo", "systemctl", "journalctl")
# Of the real /etc: what programs need to run, and to make a user.
OF_ETC = (
    *("passwd", "group", "shadow", "gshadow", "login.defs", "default", "nsswitch.conf", "ssl", "alternatives"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "pam.d", "security", "protocols", "services"),
)
FOLDERS = (
    *("etc/caddy", "etc/systemd/system", "opt/heliograph/bin", "run/secrets", "srv/heliograph", "stubs"),
    *("tmp", "root", "home", "var/lib", "var/log"),
)
BWRAP = ("bwrap", "--unshare-net", "--unshare-pid", "--die-with-parent")


class Machine:
    def __init__(self, folder: Path, files: dict[str, str], sockets: Sequence[Path] = ()) -> None:
        """Create the machine. `files`: files of the working folder."""
        if shutil.which("bwrap") is None or os.getuid() != 0:
            miss("the operator's pages", "bubblewrap is not installed, or this is not root, who can make users")
        tried = subprocess.run([*BWRAP, "--ro-bind", "/", "/", "true"], capture_output=True, text=True)
        if tried.returncode:
            miss("the operator's pages", f"bubblewrap cannot make namespaces here ({tried.stderr.strip()})")
        self._folder, self._sockets = folder, sockets
        folder.chmod(0o755)
        for name in FOLDERS:
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "tmp").chmod(0o1777)
        for name in OF_ETC:
            subprocess.run(["cp", "-a", f"/etc/{name}", folder / "etc"], check=False, stderr=subprocess.DEVNULL)
        (folder / "etc/hosts").write_text("127.0.0.1 localhost db\n")
        (folder / "run/secrets/s3").write_text("hush")
        program = folder / "opt/heliograph/bin/heliograph"
        program.write_text(
            f'#!/bin/sh\ncase $1 in serve|capacity) exec {sys.executable} -P -m heliograph.cli.main "$@" ;; esac\n'
            f'exec {INSIDE} heliograph "$@"\n'
        )
        program.chmod(0o755)
        for name in PROGRAMS:
            stub = folder / "stubs" / name
            stub.write_text(f'#!/bin/sh\nexec {INSIDE} {name} "$@"\n')
            stub.chmod(0o755)
        shutil.copytree(ROOT / "deploy", folder / HERE[1:] / "deploy")
        for name, text in files.items():
            (folder / HERE[1:] / name).write_text(text)

    def run(self, blocks: list[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
        """Run commands until one fails; return the output and exit code of each."""
        ours = [Path(sys.base_prefix), Path(sys.prefix), ROOT]
        command = [*BWRAP, "--bind", str(self._folder), "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run"]
        for name in ("bin", "sbin", "lib", "lib64"):
            if Path("/", name).is_symlink():
                command += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
            elif Path("/", name).exists():
                command += ["--ro-bind", f"/{name}", f"/{name}"]
        command += ["--ro-bind", "/usr", "/usr", "--tmpfs", "/usr/local/bin"]
        command += ["--bind", str(self._folder / "run/secrets"), "/run/secrets"]
        for path in ours:
            (self._folder / str(path)[1:]).mkdir(parents=True, exist_ok=True)  # bubblewrap would keep others out
            command += ["--ro-bind", str(path), str(path)]
        for path in self._sockets:
            command += ["--bind", str(path), str(path)]
        command += ["--chdir", HERE, "--clearenv", "--setenv", "PATH", f"{STUBS}:/usr/local/bin:/usr/bin:/usr/sbin"]
        command += ["--setenv", "OURS", ":".join(map(str, ours)), "--setenv", "LANG", "C.UTF-8"]
        command += ["--setenv", "HELIOGRAPH_STOP_DELAY_MS", "0"]
        asked = {"blocks": blocks, "socket": str(self._sockets[0]) if self._sockets else None}
        done = subprocess.run(
            [*command, sys.executable, str(ROOT / "tests/confined/inside.py"), "machine"],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]
