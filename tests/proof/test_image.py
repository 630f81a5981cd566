"""The image of `make image`: built, and run as an engine would, by its own settings on a root that nobody can write to.

Where no registry can be reached, its base is made of Debian's packages and its wheels are those that pip finds here.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

import msgspec
import pytest
import yaml

from heliograph import __version__
from tests.chart import DEPLOY
from tests.confined.inside import _pump
from tests.conftest import _on_server
from tests.npm import miss
from tests.proof.size import report
from tests.service import Service, free_port, until
from tests.test_deploy import OURS
from tests.test_dist import ROOT

KEPT = ROOT / ".venv" / "image-base.tar"
MB = 1000 * 1000
OVER_BASE_MAX = 180 * MB
USER = "65532"
GRACE_S = 75  # of the compose files
SETUP = """
[[teams]]
id = "team_a"
name = "A"
mode = "live"
credit = "5.00"
  [[teams.domains]]
  name = "a.test"
  verified = true
  approved = true
"""
MAIL = {"from": "hello@a.test", "to": "delivered@simulator.test", "subject": "Hello", "text": "It works."}


class Image(msgspec.Struct, frozen=True):
    root: Path
    config: dict[str, Any]
    layers: list[str]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of `make image` on this machine."""
    if not any(shutil.which(engine) for engine in ("docker", "podman", "buildah")):
        miss("the image", "docker, podman and buildah are not installed")
    if os.geteuid() or not shutil.which("bwrap"):
        miss("the image", "it is run by bubblewrap, as root")
    if "BASE" not in os.environ and not KEPT.exists():
        if not shutil.which("mmdebstrap"):
            miss("the image", "mmdebstrap is not installed: name a base that can be reached with BASE=")
        subprocess.run(["make", "image-base", f"BASE={KEPT}"], check=True, cwd=ROOT)
    wheels = tmp_path_factory.mktemp("wheels")
    for name in ("requirements.lock", "requirements-dist.lock"):
        pip = [sys.executable, "-m", "pip", "download", "-q", "--require-hashes", "-r", name, "-d", str(wheels)]
        subprocess.run(pip, check=True, cwd=ROOT)
    here = {"BASE": str(KEPT), "BUILDAH_ISOLATION": "chroot", "WHEELS": str(wheels)}
    return here | os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}


def built(folder: Path, given: Mapping[str, str], **more: str) -> Image:
    """The image, as the file that an engine loads has it."""
    subprocess.run(["make", "image", f"OUT={folder}/image.tar"], check=True, cwd=ROOT, env={**given, **more})
    (folder / "parts").mkdir()
    (folder / "root").mkdir()
    subprocess.run(["tar", "-xf", "image.tar", "-C", "parts"], check=True, cwd=folder)
    [manifest] = json.loads((folder / "parts" / "manifest.json").read_text())
    for layer in manifest["Layers"]:
        subprocess.run(["tar", "-xpf", f"parts/{layer}", "-C", "root"], check=True, cwd=folder)
    config = json.loads((folder / "parts" / manifest["Config"]).read_text())
    return Image(folder / "root", config["config"], config["rootfs"]["diff_ids"])


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, given: dict[str, str]) -> Image:
    return built(tmp_path_factory.mktemp("image"), given)


class Container:
    """A service of a compose file, or without one what the image says itself, on the machine's network."""

    def __init__(
        self, image: Image, data: Path, mounts: Mapping[str, Path] = {}, composed: Mapping[str, Any] = {}
    ) -> None:
        self.image, self.mounts, self.composed = image, {"/data": data, **mounts}, composed
        self.port = free_port()
        self.service = Service("", data)
        self.service.ports = [self.port]

    def confined(self, command: list[str]) -> list[str]:
        """As an engine starts it with `read_only`, `cap_drop`, `tmpfs` and its mounts."""
        known = dict(one.split("=", 1) for one in self.image.config["Env"]) | self.composed.get("environment", {})
        known |= {"HELIOGRAPH_LISTEN": f"127.0.0.1:{self.port}", "HELIOGRAPH_STOP_DELAY_MS": "0"}
        known = {name: re.sub(r"\$\{DOMAIN.*?\}", "mail.example.com", value) for name, value in known.items()}
        return [
            *("bwrap", "--die-with-parent", "--ro-bind", str(self.image.root), "/", "--tmpfs", "/tmp"),
            *("--tmpfs", "/run", "--perms", "0755", "--dir", "/run/secrets"),
            *(word for target, source in self.mounts.items() for word in ("--bind", str(source), target)),
            *("--proc", "/proc", "--dev", "/dev", "--chdir", self.image.config["WorkingDir"]),
            *("--clearenv", "--cap-add", "ALL"),
            *(word for name, value in known.items() for word in ("--setenv", name, value)),
            *("--", "/usr/bin/setpriv", "--reuid", USER, "--regid", USER, "--clear-groups", "--no-new-privs"),
            *("--inh-caps=-all", "--bounding-set=-all"),
            *(word.replace(":8701", f":{self.port}") for word in command),
        ]

    def run(self, *arguments: str, given: str = "") -> str:
        command = self.confined(["heliograph", *arguments])
        return subprocess.run(command, input=given, check=True, capture_output=True, text=True).stdout

    def is_healthy(self) -> bool:
        _, *check = self.composed.get("healthcheck", {}).get("test") or self.image.config["Healthcheck"]["Test"]
        return not subprocess.run(self.confined(check), capture_output=True).returncode

    @contextmanager
    def serving(self) -> Iterator[int]:
        """By its own command, until it is healthy: the id of its process."""
        command = [*self.image.config["Entrypoint"], *self.composed.get("command", self.image.config["Cmd"])]
        with subprocess.Popen(self.confined(command)) as engine:
            until(self.is_healthy)
            [process] = Path(f"/proc/{engine.pid}/task/{engine.pid}/children").read_text().split()
            yield int(process)


def relay(folder: Path) -> int:
    """The port of a PostgreSQL that listens in a folder, which the image's user cannot enter."""
    [found] = folder.glob(".s.PGSQL.*[0-9]")
    server = socket.create_server(("127.0.0.1", 0))

    def pass_on() -> None:
        while True:
            near, far = server.accept()[0], socket.socket(socket.AF_UNIX)
            far.connect(str(found))
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=_pump, args=(one, other), daemon=True).start()

    threading.Thread(target=pass_on, daemon=True).start()
    return int(server.getsockname()[1])


def owned(folder: Path) -> Path:
    folder.mkdir(mode=0o700)
    os.chown(folder, int(USER), int(USER))
    return folder


def test_it_is_small_and_the_same_at_every_build(image: Image, given: dict[str, str], tmp_path: Path) -> None:
    added = [image.root / "opt" / "heliograph", image.root / "data"]
    size = sum(file.lstat().st_size for folder in added for file in folder.rglob("*") if not file.is_dir())
    assert size <= OVER_BASE_MAX
    assert built(tmp_path, given, NEW="1").layers == image.layers
    report("image", f"{size / MB:.0f} MB over its base; two builds have the same layers: {', '.join(image.layers)}")


def test_it_holds_what_the_bill_of_materials_says(image: Image) -> None:
    pinned = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.lock").read_text("utf-8"), re.M)
    held = (image.root / "opt" / "heliograph").rglob("*.dist-info")
    assert {tuple(one.stem.lower().replace("_", "-").rsplit("-", 1)) for one in held} == {
        *((name.lower().replace("_", "-"), version) for name, version in pinned),
        ("heliograph", __version__),
    }


def test_it_serves_is_killed_comes_back_and_stops(image: Image, tmp_path: Path) -> None:
    assert image.config["User"] == f"{USER}:{USER}"
    data = owned(tmp_path / "volume")
    container = Container(image, data)
    began = time.monotonic()
    with container.serving() as process:
        took_s = time.monotonic() - began
        assert f"Uid:\t{USER}\t{USER}" in Path(f"/proc/{process}/status").read_text()
        container.run("apply", "-", given=SETUP)
        key = container.run("key", "create", "--team", "team_a", "--name", "k").split()[-1]
        sent = container.service.post("/v1/emails", MAIL, key=key).json["id"]
        os.kill(process, signal.SIGKILL)
    with container.serving() as process:
        until(lambda: container.service.get(f"/v1/emails/{sent}", key=key).json["status"] == "delivered")
        began = time.monotonic()
        os.kill(process, signal.SIGTERM)
        until(lambda: not Path(f"/proc/{process}").exists(), GRACE_S)
    stopped_s = time.monotonic() - began
    assert {path.stat().st_uid for path in data.rglob("*")} == {int(USER)}
    report("image", f"healthy {took_s:.1f} s after its start as {USER}, stopped in {stopped_s:.1f} s")


@pytest.mark.parametrize("file", ["compose.sqlite.yaml", "compose.postgres.yaml"])
def test_a_compose_file(image: Image, tmp_path: Path, file: str, request: pytest.FixtureRequest) -> None:
    """Its services of ours, by their command, environment, secrets, volume and health check, in their order."""
    read = yaml.safe_load((DEPLOY / file).read_text("utf-8"))
    ours = {name: one for name, one in read["services"].items() if one["image"] == OURS}
    secrets = {"secret": b64encode(bytes(32)).decode()}
    mounts = dict[str, Path]()
    if "postgres" in read["services"]:
        url = urlsplit(request.getfixturevalue("postgres"))
        port = relay(Path(parse_qs(url.query)["host"][0]))
        secrets["database"] = f"postgresql://{url.username}@127.0.0.1:{port}/compose"
        _on_server(urlunsplit(url), "CREATE DATABASE compose")
    for name, text in secrets.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o644)
        mounts[f"/run/secrets/{name}"] = tmp_path / name
    tmp_path.chmod(0o755)
    data = owned(tmp_path / "volume")
    assert {volume for one in ours.values() for volume in one["volumes"]} == {"data:/data"}
    with ExitStack() as running:
        started = []
        for one in ours.values():
            wanted = {f"/run/secrets/{secret}" for secret in one["secrets"]}
            given = {target: source for target, source in mounts.items() if target in wanted}
            started.append(container := Container(image, data, given, one))
            process = running.enter_context(container.serving())
            running.callback(os.kill, process, signal.SIGTERM)
        first = started[0]
        first.run("apply", "-", given=SETUP)
        key = first.run("key", "create", "--team", "team_a", "--name", "k").split()[-1]
        sent = first.service.post("/v1/emails", MAIL, key=key).json["id"]
        until(lambda: first.service.get(f"/v1/emails/{sent}", key=key).json["status"] == "delivered")
    report("image", f"{file}: {', '.join(ours)} are healthy, and a message is delivered")
