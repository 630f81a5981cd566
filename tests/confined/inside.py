"""The program inside of a confined machine; the first argument selects the machine itself or one of its tools."""

import json
import os
import pwd
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

UNITS, LOGS, RUNNING = Path("/etc/systemd/system"), Path("/var/log"), Path("/run/units")
# Its reload would say no more
OF_OTHERS = {"caddy": "caddy validate --adapter caddyfile --config /etc/caddy/Caddyfile"}
PATIENCE_S = 120
ROOT, FORKS = Path(__file__).parents[2], "/run/forks"
KEPT = ("PATH", "OURS", "LANG", "HELIOGRAPH_STOP_DELAY_MS")
Unit = dict[str, list[str]]


# -- the machine -------------------------------------------------------------------------------------------


def machine() -> None:
    asked = json.load(sys.stdin)
    if asked["socket"]:
        threading.Thread(target=_relay, args=(Path(asked["socket"]),), daemon=True).start()
    _forks()
    _objects()
    for block in asked["blocks"]:
        serving = None
        for command in block["commands"]:
            if block["instead"] and not serving:
                _do("systemctl stop heliograph")
            if command.startswith("heliograph serve"):
                serving = _serve(command)
                continue
            if _do(command):
                return
        if serving:
            os.killpg(serving.pid, signal.SIGTERM)
            serving.wait(PATIENCE_S)
            if _do("systemctl start heliograph"):
                return


def _forks() -> None:
    """Run a process that has imported `heliograph` and forks on request."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(FORKS)
        os.chmod(FORKS, 0o777)
        subprocess.Popen([sys.executable, "-m", "tests.forks"], stdin=told.fileno(), cwd=ROOT)


def _objects() -> None:
    """Run an object store on port 9000, with the bucket of the docs page."""
    import urllib.request  # the other programs need none of it

    server = [sys.executable, "-m", "moto.server", "-p", "9000"]
    subprocess.Popen(server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | {"HOME": "/tmp"})
    bucket = urllib.request.Request("http://127.0.0.1:9000/mail-files", method="PUT")
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(bucket).close()
            return
        except OSError:
            time.sleep(0.2)
    sys.exit("no store of objects starts")


def _do(command: str) -> int:
    script, began = f"set -eo pipefail\n{command}", time.monotonic()
    done = subprocess.run(
        ["bash", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    _tell(command, done.returncode, f"{done.stdout}({time.monotonic() - began:.1f} s)\n")
    allowed = (0, 1) if " preflight" in command else (0,)  # it finds no network here, and says so
    return 0 if done.returncode in allowed else 1


def _tell(command: str, code: int, said: str) -> None:
    print(json.dumps({"command": command, "code": code, "said": said}), flush=True)


def _serve(command: str) -> "subprocess.Popen[str]":
    """Run the service in the background; return when it is ready."""
    run = ["bash", "-c", f"exec {command}"]
    serving = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    assert serving.stdout
    said = ""
    for line in serving.stdout:
        said += line
        if line.startswith("Heliograph is "):
            break
    else:
        _tell(command, serving.wait() or 1, said)
        sys.exit(0)
    _tell(command, 0, said)
    threading.Thread(target=serving.stdout.read, daemon=True).start()
    return serving


def _relay(path: Path) -> None:
    """Make the PostgreSQL outside, reached by its socket, available as db:5432."""
    [found] = path.glob(".s.PGSQL.*[0-9]")
    server = socket.create_server(("127.0.0.1", 5432))
    while True:
        near, _ = server.accept()
        far = socket.socket(socket.AF_UNIX)
        far.connect(str(found))
        for one, other in ((near, far), (far, near)):
            threading.Thread(target=_pump, args=(one, other), daemon=True).start()


def _pump(one: socket.socket, other: socket.socket) -> None:
    try:
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        other.close()


# -- heliograph --------------------------------------------------------------------------------------------


def heliograph(arguments: list[str]) -> None:
    """Run a command as the calling user in their folder and environment, without importing everything again."""
    user, group = os.getuid(), os.getgid()
    own = f"os.initgroups({pwd.getpwuid(user).pw_name!r}, {group}); os.setgid({group}); os.setuid({user})"
    program = f"import os; {own}; from heliograph.cli.main import main; main()"
    os.umask(umask := os.umask(0o077))
    asked = json.dumps([program, arguments, dict(os.environ), os.getcwd(), umask]).encode()
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as forks, theirs:
        forks.connect(FORKS)
        socket.send_fds(forks, [asked], [theirs.fileno(), 1])
    _pid, code = ours.recv(20), ours.recv(20)
    sys.exit(int(code))


# -- sudo --------------------------------------------------------------------------------------------------


def sudo(arguments: list[str]) -> None:
    user = "root"
    if arguments[0] == "-u":
        user, arguments = arguments[1], arguments[2:]
    who = pwd.getpwnam(user)
    environment = {name: os.environ[name] for name in KEPT} | {"HOME": who.pw_dir}
    while re.match(r"\w+=", arguments[0]):
        name, _, value = arguments.pop(0).partition("=")
        environment[name] = value
    os.initgroups(user, who.pw_gid)
    os.setgid(who.pw_gid)
    os.setuid(who.pw_uid)
    os.execvpe(arguments[0], arguments, environment)


# -- systemd -----------------------------------------------------------------------------------------------


def systemctl(arguments: list[str]) -> None:
    verb, *rest = [one for one in arguments if one != "--now"]
    for unit in rest:
        if unit in OF_OTHERS:
            subprocess.run(OF_OTHERS[unit], shell=True, check=True)
            continue
        if verb in ("stop", "restart"):
            stop(unit)
        is_started = verb in ("start", "restart") or (verb == "enable" and "--now" in arguments)
        if is_started and unit.endswith(".timer"):
            read(unit.removesuffix(".timer"))  # what it starts at its time; nobody waits for that here
        elif is_started:
            start(unit)


def journalctl(arguments: list[str]) -> None:
    print(LOGS.joinpath(arguments[arguments.index("-u") + 1]).read_text())


def read(name: str) -> Unit:
    """Return the settings of [Service] with its drop-ins; an empty value clears earlier ones."""
    template, at, instance = name.partition("@")
    files = [UNITS / f"{template}{at}.service", *sorted(UNITS.glob(f"{template}{at}.service.d/*.conf"))]
    found: Unit = {}
    for file in files:
        section = ""
        for line in file.read_text("utf-8").splitlines():
            if line.startswith("["):
                section = line
            elif section == "[Service]" and line and line[0] not in "#;":
                key, _, value = line.partition("=")
                found.setdefault(key, []).append(value.replace("%i", instance))
                if not value:
                    found[key] = []
    return found


def start(name: str) -> None:
    unit = read(name)
    [user], [folder] = unit["User"], unit["WorkingDirectory"]
    who = pwd.getpwnam(user)
    for path in map(Path, _states(unit)):
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(int(unit.get("StateDirectoryMode", ["0755"])[0], 8))
        os.chown(path, who.pw_uid, who.pw_gid)
    RUNNING.mkdir(exist_ok=True)
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind(f"\0{name}")
    told.settimeout(0.2)
    environment = {kept: os.environ[kept] for kept in KEPT} | {"NOTIFY_SOCKET": f"@{name}"}
    environment |= dict(one.split("=", 1) for line in unit.get("Environment", []) for one in shlex.split(line))
    as_user = ["setpriv", f"--reuid={user}", f"--regid={who.pw_gid}", "--init-groups", "--no-new-privs", "--"]
    masked = ["sh", "-c", f'umask {unit["UMask"][0]}; exec "$@"', "sh"]
    confined = [*_confined(unit), "--chdir", folder, *as_user, *masked]
    if unit.get("Type") == ["oneshot"]:
        for line in (*unit["ExecStart"], *unit.get("ExecStartPost", [])):
            subprocess.run([*confined, *shlex.split(line.replace("%%", "%"))], env=environment, check=True)
        return
    command = [*confined, *shlex.split(unit["ExecStart"][0])]
    with open(LOGS / name, "a") as log:
        running = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    (RUNNING / name).write_text(str(running.pid))
    end = time.monotonic() + PATIENCE_S
    while running.poll() is None and time.monotonic() < end:
        try:
            if b"READY=1" in told.recv(4096):
                return
        except TimeoutError:
            continue
    sys.exit(f"{name} does not start:\n{(LOGS / name).read_text()[-4000:]}")


def _states(unit: Unit) -> list[str]:
    return [f"/var/lib/{name}" for line in unit.get("StateDirectory", []) for name in line.split()]


def _confined(unit: Unit) -> list[str]:
    """Return the mounts of the unit, according to systemd.exec(5)."""

    def is_on(key: str) -> bool:
        return unit.get(key, ["no"])[-1] == "yes"

    strict = unit.get("ProtectSystem", ["no"])[-1] == "strict"
    mounts = ["bwrap", "--ro-bind" if strict else "--bind", "/", "/", "--proc", "/proc"]
    mounts += ["--dev", "/dev"] if is_on("PrivateDevices") else ["--dev-bind", "/dev", "/dev"]
    hidden = [("PrivateTmp", "1777", ("tmp", "var/tmp")), ("ProtectHome", "0755", ("home", "root"))]
    for key, mode, names in hidden:
        for name in names if is_on(key) else ():
            mounts += ["--perms", mode, "--tmpfs", f"/{name}"] if Path("/", name).exists() else []
    for path in os.environ["OURS"].split(":"):  # this machine's Python may be in somebody's home
        for above in reversed(Path(path).parents[:-1]):
            mounts += ["--perms", "0755", "--dir", str(above)]
        mounts += ["--ro-bind", path, path]
    writable = [*_states(unit), *(one for line in unit.get("ReadWritePaths", []) for one in line.split())]
    return mounts + [part for path in writable for part in ("--bind", path, path)]


def stop(name: str) -> None:
    path = RUNNING / name
    if not path.exists():
        return
    pid = int(path.read_text())
    path.unlink()
    os.killpg(pid, signal.SIGTERM)
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and _lives(pid):
        time.sleep(0.1)


def _lives(group: int) -> bool:
    """Return whether a process of this group is running; zombies do not count."""
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    states = [stat.read_text().rpartition(")")[2].split() for stat in Path("/proc").glob("[0-9]*/stat")]
    return any(int(state[2]) == group and state[0] != "Z" for state in states)


if __name__ == "__main__":
    called, *rest = sys.argv[1:]
    machine() if called == "machine" else globals()[called](rest)
