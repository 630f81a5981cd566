"""What `make dist` makes: `heliograph demo` runs in an environment that has nothing else, and sends."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.npm import miss
from tests.proof.size import report
from tests.service import Service
from tests.test_dist import ROOT


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(["make", "dist", f"DIST={folder}"], check=True, cwd=ROOT)
    return folder


@contextmanager
def running_demo(program: list[str], folder: Path, **more: str) -> Iterator[tuple[Service, str, str]]:
    """The demo as a stranger starts it: to be asked, with the keys of its live team and its sandbox."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HELIOGRAPH_", "PYTHON"))}
    environment |= more | {"PYTHONUNBUFFERED": "1", "HELIOGRAPH_BOUNCE_LISTEN": "off", "HELIOGRAPH_STOP_DELAY_MS": "0"}
    command = [*program, "demo", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env=environment) as demo:
        assert demo.stdout
        said = ""
        for line in demo.stdout:
            said += line
            if line.startswith("Stop with"):
                break
        service = Service("", folder)
        service.ports = [int(port) for port in re.findall(r"^API +http://127.0.0.1:(\d+)/v1$", said, re.M)]
        live, sandbox = re.findall(r"^(?:Live|Sandbox) key +(hk_\S+)$", said, re.M)
        yield service, live, sandbox
        demo.terminate()
        assert demo.wait() == 0


def test_the_bill_of_materials_names_every_pinned_dependency(dist: Path) -> None:
    [bill] = dist.glob("*.cdx.json")
    listed = json.loads(bill.read_text("utf-8"))
    assert (listed["bomFormat"], listed["metadata"]["component"]["name"]) == ("CycloneDX", "heliograph")
    pinned = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.lock").read_text("utf-8"), re.M)
    assert sorted((part["name"], part["version"]) for part in listed["components"]) == sorted(pinned)
    assert all(part["externalReferences"][0]["hashes"] for part in listed["components"])
    report("install", f"bill of materials: {len(pinned)} dependencies with their hashes")


def test_the_steps_of_the_image(tmp_path: Path) -> None:
    """Those of the first stage, in an empty folder; there is no container engine here."""
    steps = (ROOT / "deploy" / "Dockerfile").read_text("utf-8").partition("AS build")[2].partition("FROM ")[0]
    (tmp_path / "build").mkdir()
    for verb, words in re.findall(r"^(COPY|RUN) (.*)$", steps, re.M):
        if verb == "RUN":
            run = words.replace("/opt/heliograph", f"{tmp_path}/opt").replace("python ", f"{sys.executable} ", 1)
            subprocess.run(["sh", "-c", run], check=True, cwd=tmp_path / "build")
            continue
        *sources, target = words.split()
        for source in sources:
            copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
            copy(ROOT / source, tmp_path / "build" / target)
    said = subprocess.run([f"{tmp_path}/opt/bin/heliograph", "--version"], check=True, capture_output=True, text=True)
    assert said.stdout.startswith("heliograph, version ")
    size = sum(
        file.stat().st_size for file in (tmp_path / "opt").rglob("*") if file.is_file() and not file.is_symlink()
    )
    report("install", f"what the image adds to Python's: {size >> 20} MiB")


def test_a_wheel_in_an_empty_environment(dist: Path, tmp_path: Path) -> None:
    [wheel] = dist.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    began = time.monotonic()
    pip = [f"{tmp_path}/venv/bin/python", "-m", "pip", "install", "--quiet", str(wheel)]
    installed = subprocess.run(pip, capture_output=True, text=True)
    if installed.returncode:
        miss("an installation", installed.stderr.strip().splitlines()[-1])
    took_s = time.monotonic() - began
    program = f"{tmp_path}/venv/bin/heliograph"
    with running_demo([program], tmp_path) as (service, live, _):
        body = {"from": "hello@demo.test", "to": "delivered@simulator.test", "subject": "Hello", "text": "It works."}
        assert service.post("/v1/emails", body, key=live).status == 202
        assert service.get("/docs/guides/configuration", key=None).status == 200
    version = ".".join(map(str, sys.version_info[:2]))
    report("install", f"wheel of {wheel.stat().st_size >> 10} KiB, installed in {took_s:.0f} s on Python {version}")
