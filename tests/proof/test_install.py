"""What `make dist` makes: `heliograph demo` runs in an environment that has nothing else, and sends."""

import json
import os
import re
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
from tests.service import Service, until
from tests.test_dist import PACKAGES_MAX, ROOT

SIZE_MAX = 60_000_000  # of the packages, as they are downloaded
MAIL = {"from": "hello@demo.test", "to": "delivered@simulator.test", "subject": "Hello", "text": "It works."}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    without_image = os.environ | {"ENGINE": "none"}  # tests/proof/test_image.py has it
    subprocess.run(["make", "release", f"DIST={folder}"], check=True, cwd=ROOT, env=without_image)
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


def test_release_files_match_their_checksums(dist: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], check=True, cwd=dist)
    summed = {line.split()[1] for line in (dist / "SHA256SUMS").read_text().splitlines()}
    assert summed == {path.name for path in dist.iterdir()} - {"SHA256SUMS"}
    assert {re.sub(r"[-_][0-9][^-_]*?(?=-py3|\.(?:tar|cdx|tgz))", "", name) for name in summed} == {
        *("heliograph-py3-none-any.whl", "heliograph.tar.gz", "heliograph.cdx.json", "NOTES.md"),
        *("heliograph_client-py3-none-any.whl", "heliograph_client.tar.gz", "heliograph-client.tgz"),
    }


def test_the_bill_of_materials_names_every_pinned_dependency(dist: Path) -> None:
    [bill] = dist.glob("*.cdx.json")
    listed = json.loads(bill.read_text("utf-8"))
    assert (listed["bomFormat"], listed["metadata"]["component"]["name"]) == ("CycloneDX", "heliograph")
    pinned = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.lock").read_text("utf-8"), re.M)
    assert sorted((part["name"], part["version"]) for part in listed["components"]) == sorted(pinned)
    assert all(part["externalReferences"][0]["hashes"] for part in listed["components"])
    report("install", f"bill of materials: {len(pinned)} dependencies with their hashes")


@pytest.fixture(scope="module")
def index(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with our wheel and what it needs, as pip finds it here."""
    folder = tmp_path_factory.mktemp("index")
    [wheel] = dist.glob("heliograph-*.whl")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "-d", str(folder / "wheels"), str(wheel)]
    if failed := subprocess.run(pip, capture_output=True, text=True).returncode:
        miss("an index", f"pip download ended with {failed}")
    for file in (folder / "wheels").iterdir():
        page = folder / "simple" / file.name.partition("-")[0].lower().replace("_", "-") / "index.html"
        page.parent.mkdir(parents=True)
        page.write_text(f'<a href="../../wheels/{file.name}">{file.name}</a>')
    return folder


@pytest.fixture(scope="module")
def runners(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runners")
    venv.create(folder, with_pip=True)
    pip = [f"{folder}/bin/python", "-m", "pip", "install", "--quiet", "uv", "pipx"]
    if subprocess.run(pip, capture_output=True).returncode:
        miss("uvx and pipx", "they cannot be installed here")
    return folder / "bin"


def test_install_downloads_few_packages(index: Path) -> None:
    wheels = [*(index / "wheels").iterdir()]
    size = sum(file.stat().st_size for file in wheels)
    assert len(wheels) <= PACKAGES_MAX and size <= SIZE_MAX
    report("install", f"{len(wheels)} packages of {size / 1e6:.0f} MB")


@pytest.mark.parametrize("command", ["uvx heliograph", "pipx run heliograph"])
def test_install_by_name_runs_the_demo(index: Path, runners: Path, tmp_path: Path, command: str) -> None:
    """The second time: what the first has downloaded is kept."""
    url = (index / "simple").as_uri()
    known = {
        "UV_DEFAULT_INDEX": url,
        "UV_CACHE_DIR": f"{tmp_path}/uv",
        "UV_PYTHON": sys.executable,
        "PIP_INDEX_URL": url,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": "",
        "PIPX_HOME": f"{tmp_path}/pipx",
        "PATH": f"{runners}:{os.environ['PATH']}",
    }
    program = command.split()
    for folder in (tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
        began = time.monotonic()
        with running_demo([f"{runners}/{program[0]}", *program[1:]], folder, **known) as (service, live, _):
            sent = service.post("/v1/emails", MAIL, key=live).json["id"]
            until(lambda id_=sent: service.get(f"/v1/emails/{id_}", key=live).json["status"] == "delivered")
            took_s = time.monotonic() - began
    report("install", f"`{command} demo`: the first message is delivered {took_s:.1f} s after the command")


def test_wheel_installs_in_an_empty_environment(dist: Path, tmp_path: Path) -> None:
    [wheel] = dist.glob("heliograph-*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    began = time.monotonic()
    pip = [f"{tmp_path}/venv/bin/python", "-m", "pip", "install", "--quiet", str(wheel)]
    installed = subprocess.run(pip, capture_output=True, text=True)
    if installed.returncode:
        miss("an installation", installed.stderr.strip().splitlines()[-1])
    took_s = time.monotonic() - began
    program = f"{tmp_path}/venv/bin/heliograph"
    with running_demo([program], tmp_path) as (service, live, _):
        assert service.post("/v1/emails", MAIL, key=live).status == 202
        assert service.get("/docs/guides/configuration", key=None).status == 200
    version = ".".join(map(str, sys.version_info[:2]))
    report("install", f"wheel of {wheel.stat().st_size >> 10} KiB, installed in {took_s:.0f} s on Python {version}")
