"""`make test-clean`: runs the README's commands in throwaway Debian root file systems, as on a new machine.

Each run gets a fresh copy of a minimal Debian (built once per release by mmdebstrap, then cached), a `git clone` of a
commit, and its own process and mount namespaces. Dependencies are installed with network access; everything else runs
in a network namespace with only the loopback interface, so that a test that contacts another machine fails. Afterwards
the accounts, the modes of the home folders, the processes and `git status` must be unchanged.

Needs root on Linux, mmdebstrap and git. Uses only the standard library, because it runs before `.venv` exists.
"""

import argparse
import ctypes
import fcntl
import hashlib
import os
import re
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("python3", "python3-venv", "make", "git", "ca-certificates", "curl")
SUITES = {"bookworm": "3.11", "trixie": "3.13", "sid": "3.14"}  # Debian release → its Python
USER = "tester"
USER_ID = 1000
CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
# Starts the demo, runs every line that it prints for a shell, and stops it.
RUN_DEMO = r"""
make run > demo.log 2>&1 &
for _ in $(seq 600); do grep -q '^Stop with' demo.log && break; sleep 0.2; done
grep -q '^Stop with' demo.log || { cat demo.log; echo "make run did not start"; exit 1; }
grep '^curl ' demo.log > demo.sh || { echo "make run printed no commands"; exit 1; }
.venv/bin/heliograph demo --examples | grep '^curl ' >> demo.sh
sed -i 's/curl -sS /curl -sS --fail-with-body /g' demo.sh
sh -e demo.sh
kill %1
wait %1 || true
rm -r demo.log demo.sh heliograph-demo
echo; echo "every command that make run printed was answered"
"""


@dataclass(frozen=True)
class Case:
    """One combination of release and commands to test."""

    suite: str
    is_root: bool
    command: str

    @property
    def account(self) -> str:
        return "root" if self.is_root else USER

    def __str__(self) -> str:
        return f"{self.suite} (Python {SUITES[self.suite]}) as {'root' if self.is_root else 'a user'}"


DEFAULT = (
    Case("bookworm", True, "make test"),
    Case("trixie", False, f"set -e\n{RUN_DEMO}\nmake test-fast"),
)
ALL = (
    Case("bookworm", True, "make test"),
    *(Case(suite, False, f"set -e\n{RUN_DEMO}\nmake test") for suite in ("trixie", "sid")),
)


def main() -> None:
    options = parse_options()
    if os.geteuid() != 0:
        sys.exit("make test-clean needs root: it mounts file systems and changes the root folder.")
    if shutil.which("mmdebstrap") is None:
        sys.exit("make test-clean needs mmdebstrap, which is not installed.")
    cases = select_cases(options)
    for suite in {case.suite: None for case in cases}:
        build_base(suite, options.cache)
    results = {case: run_in_namespaces(case, options) for case in cases}
    print()
    for case, (succeeded, seconds) in results.items():
        print(f"test-clean: {case}: {'passed' if succeeded else 'FAILED'} in {seconds:.0f} s")
    sys.exit(not all(succeeded for succeeded, _ in results.values()))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--matrix",
        choices=("default", "all"),
        default="default",
        help="default: bookworm as root with `make test`, trixie as a user with `make run` and `make test-fast`;"
        " all: `make test` on bookworm as root, and with `make run` on trixie and sid as a user",
    )
    parser.add_argument("--suite", choices=SUITES, help="run one Debian release only, with --user and --command")
    parser.add_argument("--user", choices=("root", "user"), default="root", help="who runs it (default: root)")
    parser.add_argument("--command", default="make test", help="shell command (default: make test)")
    parser.add_argument("--revision", default="HEAD", help="commit of this repository to test (default: HEAD)")
    parser.add_argument(
        "--cache", type=Path, default=ROOT / ".venv" / "clean-roots", help="folder of the Debian bases (%(default)s)"
    )
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # already in the namespaces
    return parser.parse_args()


def select_cases(options: argparse.Namespace) -> Sequence[Case]:
    if options.suite:
        return [Case(options.suite, options.user == "root", options.command)]
    return ALL if options.matrix == "all" else DEFAULT


def base_folder(suite: str, cache: Path) -> Path:
    """Return the cached base folder of a release; another list of packages has its own."""
    return cache / f"{suite}-{hashlib.sha256(' '.join(PACKAGES).encode()).hexdigest()[:8]}"


def build_base(suite: str, cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    base = base_folder(suite, cache)
    with (cache / f"{suite}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if base.exists():
            return
        print(f"test-clean: building a base of {suite} (once; about 90 s and 300 MB) …", flush=True)
        unfinished = base.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        # A mirror's copy of sid may be older than its signature allows.
        old_mirror = '--aptopt=Acquire::Check-Valid-Until "false"'
        include = f"--include={','.join(PACKAGES)}"
        command = ["mmdebstrap", "--quiet", "--variant=minbase", "--format=directory", include, old_mirror]
        subprocess.run([*command, suite, str(unfinished)], check=True)
        unfinished.rename(base)


def run_in_namespaces(case: Case, options: argparse.Namespace) -> tuple[bool, float]:
    """Run this program again in new namespaces for one case; its mounts and processes end with it."""
    print(f"\ntest-clean: {case}", flush=True)
    began = time.monotonic()
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
    again = [sys.executable, __file__, "--inside", "--cache", str(options.cache), "--revision", options.revision]
    chosen = ["--suite", case.suite, "--user", "root" if case.is_root else "user", "--command", case.command]
    # An overlay on disk only takes space for changes. The folder is removed from outside, after the mounts have ended.
    with tempfile.TemporaryDirectory(prefix="heliograph-clean-", ignore_cleanup_errors=True) as folder:
        done = subprocess.run([*unshare, *again, *chosen], env={**os.environ, "TMPDIR": folder})
    return done.returncode == 0, time.monotonic() - began


def run_inside(case: Case, options: argparse.Namespace) -> None:
    """Run one case inside the namespaces, as process 1."""
    root = mount_root(base_folder(case.suite, options.cache), Path(tempfile.gettempdir()))
    environment = configure(root, case)
    home = root / environment["HOME"].lstrip("/")
    clone(options.revision, home / "heliograph", case)
    before = describe(root, case)
    if run(root, case, environment, "make setup", has_network=True):
        sys.exit("test-clean: make setup failed")
    code = run(root, case, environment, case.command, has_network=False)
    changes = [f"{name}: before {value!r}, now {now!r}" for name, value, now in changed(before, describe(root, case))]
    for change in changes:
        print(f"test-clean: CHANGED {change}")
    sys.exit(code or bool(changes))


def mount_root(base: Path, folder: Path) -> Path:
    """Return a writable copy of the base: an overlay, or a real copy where overlays are not permitted."""
    upper, work, root = folder / "upper", folder / "work", folder / "root"
    for made in (upper, work, root):
        made.mkdir()
    layers = f"lowerdir={base},upperdir={upper},workdir={work}"
    overlay = ["mount", "-t", "overlay", "overlay", "-o", layers, str(root)]
    if subprocess.run(overlay, stderr=subprocess.DEVNULL).returncode:
        subprocess.run(["cp", "-a", "--reflink=auto", f"{base}/.", str(root)], check=True)
    mount("-t", "proc", "proc", str(root / "proc"))
    mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(root / "dev"))
    for name, (major, minor) in DEVICES.items():
        os.mknod(root / "dev" / name, stat.S_IFCHR | 0o666, os.makedev(major, minor))
        (root / "dev" / name).chmod(0o666)
    for name in ("pts", "shm"):
        (root / "dev" / name).mkdir()
    mount("-t", "devpts", "-o", "newinstance,ptmxmode=0666", "devpts", str(root / "dev/pts"))
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", str(root / "dev/shm"))
    (root / "dev/ptmx").symlink_to("pts/ptmx")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        (root / "dev" / name).symlink_to(f"/proc/self/fd/{number}")
    (root / "dev/fd").symlink_to("/proc/self/fd")
    return root


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def configure(root: Path, case: Case) -> dict[str, str]:
    """Copy the host's network and pip configuration and add the user; return the environment for the commands."""
    for name in ("/etc/resolv.conf", CA_BUNDLE):
        if Path(name).exists():
            shutil.copy(Path(name).resolve(), root / name.lstrip("/"))
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    if not case.is_root:
        subprocess.run(["chroot", str(root), "useradd", "-m", "-u", str(USER_ID), "-s", "/bin/bash", USER], check=True)
    home = homes(root)[case.account]
    passed = {name: value for name, value in os.environ.items() if re.match(r"PIP_|(https?|no)_proxy$", name, re.I)}
    settings = [Path("/etc/pip.conf"), *(Path.home() / name for name in (".pip/pip.conf", ".config/pip/pip.conf"))]
    texts = [path.read_text("utf-8") for path in settings if path.exists()]
    for number, text in enumerate(texts[-2:]):  # pip merges the machine's file and the user's
        path = root / ("etc/pip.conf" if number == 0 else f"{home[1:]}/.config/pip/pip.conf")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    # Indexes and wheels on this machine's disk are where pip's configuration says.
    for word in " ".join([*texts, *passed.values()]).split():
        local = Path(word.removeprefix("file://"))
        if local.is_absolute() and local.is_dir():
            local = local.parent if word.startswith("file://") else local  # an index and its files are side by side
            (root / str(local)[1:]).mkdir(parents=True, exist_ok=True)
            mount("--bind", "-o", "ro", str(local), str(root / str(local)[1:]))
    own(root / home[1:], case)
    programs = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {**passed, "HOME": home, "USER": case.account, "PATH": programs, "LANG": "C.UTF-8"}


def homes(root: Path) -> dict[str, str]:
    """Return the home folders of root and of the user."""
    accounts = [line.split(":") for line in (root / "etc/passwd").read_text("utf-8").splitlines()]
    return {account[0]: account[5] for account in accounts if account[0] in ("root", USER)}


def own(path: Path, case: Case) -> None:
    if not case.is_root:
        subprocess.run(["chown", "-R", f"{USER_ID}:{USER_ID}", str(path)], check=True)


def clone(revision: str, target: Path, case: Case) -> None:
    commit = git(ROOT, "rev-parse", f"{revision}^{{commit}}").strip()
    git(ROOT, "clone", "--quiet", "--no-hardlinks", "--no-checkout", ".", str(target))
    git(target, "checkout", "--quiet", commit)
    own(target, case)


def git(folder: Path, *words: str) -> str:
    """Return the output of a git command in a checkout, whoever owns it."""
    return subprocess.check_output(["git", "-c", "safe.directory=*", "-C", str(folder), *words], text=True)


def describe(root: Path, case: Case) -> dict[str, object]:
    """Return everything that no command may change."""
    folders = {name: root / home[1:] for name, home in homes(root).items()}
    checkout = folders[case.account] / "heliograph"
    return {
        "modes of home folders": {name: oct(folder.stat().st_mode) for name, folder in folders.items()},
        "accounts": [(root / f"etc/{name}").read_text("utf-8") for name in ("passwd", "group")],
        "processes": running_processes(),
        "git status": git(checkout, "status", "--porcelain").splitlines(),
    }


def changed(before: Mapping[str, object], now: Mapping[str, object]) -> list[tuple[str, object, object]]:
    return [(name, value, now[name]) for name, value in before.items() if now[name] != value]


def running_processes() -> list[str]:
    """Return the commands of all other processes of this namespace, after processes that are exiting have ended."""
    for _ in range(50):
        if not (commands := _running_processes()):
            break
        time.sleep(0.1)
    return commands


def _running_processes() -> list[str]:
    reap()
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        if path.parent.name != str(os.getpid()):
            try:
                commands.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue  # it has ended
    return commands


def reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def run(root: Path, case: Case, environment: Mapping[str, str], command: str, has_network: bool) -> int:
    """Run a shell command in the clone and return its exit code. As process 1, also reap orphaned processes."""

    def enter() -> None:
        if not has_network:
            leave_network()
        os.chroot(root)
        if not case.is_root:
            os.setgroups([])
            os.setgid(USER_ID)
            os.setuid(USER_ID)
        os.chdir(f"{environment['HOME']}/heliograph")

    print(f"test-clean: $ {command.strip()}", flush=True)
    process = subprocess.Popen(
        ["/bin/bash", "-c", command], env=environment, stdin=subprocess.DEVNULL, preexec_fn=enter
    )
    while True:
        ended, status = os.wait()
        if ended == process.pid:
            return os.waitstatus_to_exitcode(status)


def leave_network() -> None:
    """Enter a network namespace that has only the loopback interface."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack("16xh14x", fcntl.ioctl(control, SIOCGIFFLAGS, request))
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


if __name__ == "__main__":
    if "--inside" in sys.argv:
        given = parse_options()
        subprocess.run(["mount", "-t", "proc", "proc", "/proc"], check=True)  # of this process namespace
        run_inside(select_cases(given)[0], given)
    main()
