"""The image of `make image`: built, and run as an engine would, by its own settings on a root that nobody can write to.

Where no registry can be reached, its base is made of Debian's packages and its wheels are those that pip finds here.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from heliograph import __version__
from tests.npm import miss
from tests.proof.size import report
from tests.service import Service, free_port, until
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


def known_here(wheels: Path) -> dict[str, str]:
    """The variables of `make image` on this machine; the wheels come to that folder."""
    if "BASE" not in os.environ and not KEPT.exists():
        if not shutil.which("mmdebstrap"):
            miss("the image", "mmdebstrap is not installed: name a base that can be reached with BASE=")
        subprocess.run(["make", "image-base", f"BASE={KEPT}"], check=True, cwd=ROOT)
    for name in ("requirements.lock", "requirements-dist.lock"):
        pip = [sys.executable, "-m", "pip", "download", "-q", "--require-hashes", "-r", name, "-d", str(wheels)]
        subprocess.run(pip, check=True, cwd=ROOT)
    here = {"BASE": str(KEPT), "BUILDAH_ISOLATION": "chroot", "WHEELS": str(wheels)}
    return here | os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    if not shutil.which("buildah"):
        miss("the image", "buildah is not installed")
    if os.geteuid() or not shutil.which("bwrap"):
        miss("the image", "it is run by bubblewrap, as root")
    return known_here(tmp_path_factory.mktemp("wheels")) | {"ENGINE": "buildah"}


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
    """What the image says itself, on the machine's network."""

    def __init__(self, image: Image, data: Path) -> None:
        self.image, self.data = image, data
        self.port = free_port()
        self.service = Service("", data)
        self.service.ports = [self.port]

    def confined(self, command: list[str]) -> list[str]:
        """As an engine starts it on a root that nobody can write to, with a volume and without capabilities."""
        known = dict(one.split("=", 1) for one in self.image.config["Env"])
        known |= {"HELIOGRAPH_LISTEN": f"127.0.0.1:{self.port}", "HELIOGRAPH_STOP_DELAY_MS": "0"}
        return [
            *(
                "bwrap",
                "--die-with-parent",
                "--ro-bind",
                str(self.image.root),
                "/",
                "--tmpfs",
                "/tmp",
                "--tmpfs",
                "/run",
            ),
            *("--bind", str(self.data), "/data"),
            *("--proc", "/proc", "--dev", "/dev", "--chdir", self.image.config["WorkingDir"]),
            *("--clearenv", "--cap-add", "ALL"),
            *(word for name, value in known.items() for word in ("--setenv", name, value)),
            *("--", "/usr/bin/setpriv", "--reuid", USER, "--regid", USER, "--clear-groups", "--no-new-privs"),
            *("--inh-caps=-all", "--bounding-set=-all", *command),
        ]

    def run(self, *arguments: str, given: str = "") -> str:
        command = self.confined(["heliograph", *arguments])
        return subprocess.run(command, input=given, check=True, capture_output=True, text=True).stdout

    def is_healthy(self) -> bool:
        _, *check = self.image.config["Healthcheck"]["Test"]
        return not subprocess.run(self.confined(check), capture_output=True).returncode

    @contextmanager
    def serving(self) -> Iterator[int]:
        """By its own command, until it is healthy: the id of its process."""
        command = [*self.image.config["Entrypoint"], *self.image.config["Cmd"]]
        with subprocess.Popen(self.confined(command)) as engine:
            until(self.is_healthy)
            [process] = Path(f"/proc/{engine.pid}/task/{engine.pid}/children").read_text().split()
            yield int(process)


def owned(folder: Path) -> Path:
    folder.mkdir(mode=0o700)
    os.chown(folder, int(USER), int(USER))
    return folder


def test_image_is_small_and_reproducible(image: Image, given: dict[str, str], tmp_path: Path) -> None:
    added = [image.root / "opt" / "heliograph", image.root / "data"]
    size = sum(file.lstat().st_size for folder in added for file in folder.rglob("*") if not file.is_dir())
    assert size <= OVER_BASE_MAX
    assert built(tmp_path, given, NEW="1").layers == image.layers
    report("image", f"{size / MB:.0f} MB over its base; two builds have the same layers: {', '.join(image.layers)}")


def test_image_contains_what_the_bill_of_materials_lists(image: Image, tmp_path: Path) -> None:
    pinned = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.lock").read_text("utf-8"), re.M)
    held = (image.root / "opt" / "heliograph").rglob("*.dist-info")
    assert {tuple(one.stem.lower().replace("_", "-").rsplit("-", 1)) for one in held} == {
        *((name.lower().replace("_", "-"), version) for name, version in pinned),
        ("heliograph", __version__),
    }
    python = tmp_path / "python.cdx.json"
    listing = ["-m", "cyclonedx_py", "requirements", "--pyproject", "pyproject.toml", "-o", str(python)]
    subprocess.run([sys.executable, *listing, "requirements.lock"], check=True, cwd=ROOT)
    bill = subprocess.check_output([sys.executable, ROOT / "deploy/bill.py", python, image.root.parent / "image.tar"])
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill.decode()) is None
    query = ["dpkg-query", "--admindir", f"{image.root}/var/lib/dpkg", "-W", "-f", "${Package} ${Version}\n"]
    debian = subprocess.check_output(query, text=True).splitlines()
    told = [f"{one['name']} {one['version']}" for one in json.loads(bill)["components"]]
    assert sorted(told) == sorted([*debian, *(f"{name} {version}" for name, version in pinned)])
    report("image", f"bill of materials: {len(pinned)} Python packages, {len(debian)} of Debian")


def test_image_serves_survives_a_kill_and_stops(image: Image, tmp_path: Path) -> None:
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
