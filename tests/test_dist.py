"""What `make dist` makes: a wheel that is whole, and the same at every build."""

import email.message
import email.parser
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliograph import __version__
from heliograph.api.guides import NAMES

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "heliograph"
INFO = f"heliograph-{__version__}.dist-info"
PACKAGES_MAX = 40  # with ours
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def build(folder: Path) -> Path:
    """The wheel, as `make dist` makes it from a commit of this time."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    made = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=made)
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def packed(wheel: Path) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(wheel) as opened:
        yield opened


def test_two_builds_are_equal(wheel: Path, tmp_path: Path) -> None:
    again = build(tmp_path)
    assert again.name == wheel.name == f"heliograph-{__version__}-py3-none-any.whl"
    assert again.read_bytes() == wheel.read_bytes()


def test_every_file_of_ours_is_in_it_and_none_else(packed: zipfile.ZipFile) -> None:
    ours = {path.relative_to(PACKAGE.parent).as_posix() for path in PACKAGE.rglob("*") if path.is_file()}
    guides = {f"heliograph/api/guides/{name}.md" for name in NAMES}
    assert {name for name in packed.namelist() if not name.startswith(INFO)} == {
        *(name for name in ours if "__pycache__" not in name),
        *guides,
    }
    assert "heliograph/py.typed" in ours
    assert packed.read(f"{INFO}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert "heliograph = heliograph.cli.main:main" in packed.read(f"{INFO}/entry_points.txt").decode()


def test_the_metadata(packed: zipfile.ZipFile) -> None:
    said: email.message.Message = email.parser.Parser().parsestr(packed.read(f"{INFO}/METADATA").decode())
    assert {name: said[name] for name in ("Name", "Version", "Summary", "License-Expression", "Requires-Python")} == {
        "Name": "heliograph",
        "Version": __version__,
        "Summary": PROJECT["description"],
        "License-Expression": "Apache-2.0",
        "Requires-Python": ">=3.11",
    }
    assert said["Description-Content-Type"] == "text/markdown"
    assert said["Author"]
    assert "Typing :: Typed" in said.get_all("Classifier", [])
    needed = {line for line in said.get_all("Requires-Dist", []) if "extra ==" not in line}
    assert needed == set(PROJECT["dependencies"])


def test_it_is_built_without_what_tests_need() -> None:
    steps = subprocess.run(["make", "-n", "-B", "dist"], check=True, capture_output=True, text=True, cwd=ROOT).stdout
    assert "requirements-dist.lock" in steps and "requirements-dev.lock" not in steps
    pinned = [set((ROOT / f"requirements-{name}.lock").read_text().split("\n")) for name in ("dist", "dev")]
    assert pinned[0] <= pinned[1]


def test_a_service_without_extras_is_few_packages() -> None:
    """What pip brings by name; what differs between machines is left out."""
    found, left = set[str](), [*PROJECT["dependencies"]]
    while left:
        name = re.split(r"[^\w.-]", left.pop())[0].lower().replace("_", "-")
        if name not in found:
            found.add(name)
            left += [one for one in importlib.metadata.requires(name) or () if ";" not in one]
    assert len(found) < PACKAGES_MAX and not {"joserfc", "webauthn", "obstore", "rich"} & found


ASKS = """
import sys
for name in ("joserfc", "webauthn", "obstore", "opentelemetry"):
    sys.modules[name] = None
from heliograph import app, opening, settings  # all that a service imports
from heliograph.runtime import tracing
try:
    found = settings.read_settings({}, %r)
    opening.make_objects(found), tracing.start("1", %r)
except Exception as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("extra", "given"),
    [
        ("", {}),
        ("oidc", {"HELIOGRAPH_OIDC_ISSUER": "https://id.example.com", "HELIOGRAPH_OIDC_CLIENT_ID": "us"}),
        ("s3", {"HELIOGRAPH_ATTACHMENTS": "s3://files"}),
        ("otel", {"OTEL_TRACES_EXPORTER": "otlp"}),
    ],
)
def test_a_setting_names_the_extra_that_it_needs(extra: str, given: dict[str, str]) -> None:
    said = subprocess.check_output([sys.executable, "-c", ASKS % (given, given)], text=True)
    assert said == "" if not extra else f"pip install 'heliograph[{extra}]'" in said
    assert not extra or extra in PROJECT["optional-dependencies"]
