"""Checks of the files in deploy/ that need none of the target machines."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from heliograph import __version__
from heliograph.settings import NAMES, VARIABLE_PREFIX, Settings
from tests.chart import ALL, CHART, DEPLOY, VALUES, manifests, rendered
from tests.npm import miss

ROOT = DEPLOY.parent
UNITS = ["heliograph.service", "heliograph-worker@.service"]
BACKUP, TIMER = "heliograph-backup.service", "heliograph-backup.timer"
EXPOSURE_MAX = 2.0
OURS = f"heliograph:{__version__}"
COMPOSE = sorted(path.name for path in DEPLOY.glob("compose.*.yaml"))
NO_FILES = {f"./secrets/{name}" for name in ("secret", "database", "postgres", "grafana")}  # the operator's own


def test_deploy_files_use_only_existing_settings() -> None:
    texts = [path.read_text("utf-8") for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    used = {name for text in texts for name in re.findall(rf"\b{VARIABLE_PREFIX}([A-Z_]+)(?=[:=])", text)}
    assert {name.lower().removesuffix("_file") for name in used} - {*NAMES, "config"} == set()
    assert used


# -- systemd -----------------------------------------------------------------------------------------------


def analyze(*arguments: str) -> str:
    if shutil.which("systemd-analyze") is None:
        miss("the units", "systemd-analyze is not installed")
    done = subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("unit", [*UNITS, BACKUP])
def test_systemd_unit_is_valid_and_hardened(unit: str, tmp_path: Path) -> None:
    text = (DEPLOY / unit).read_text("utf-8").replace("/opt/heliograph/bin/heliograph", sys.executable)
    (tmp_path / unit).write_text(text)
    assert analyze("verify", str(tmp_path / unit)) == ""
    exposure = re.search(
        r"exposure level for .*: ([0-9.]+)", analyze("security", "--offline=true", str(tmp_path / unit))
    )
    assert exposure and float(exposure[1]) <= EXPOSURE_MAX


def test_systemd_units_differ_only_in_their_command() -> None:
    item, worker = ((DEPLOY / unit).read_text("utf-8").splitlines() for unit in UNITS)
    differing = {line.partition("=")[0] for line in {*item} ^ {*worker} if not line.startswith("#")}
    assert differing == {"Description", "ExecStart"}


def test_the_backup_unit_makes_a_backup_and_removes_old_ones(tmp_path: Path) -> None:
    backups, data = tmp_path / "backups", tmp_path / "data"
    config = tmp_path / "heliograph.toml"
    config.write_text(f'database = "sqlite:///{tmp_path}/heliograph.db"\ndata = "{data}"\n')
    program = f"{sys.executable} -m heliograph"
    subprocess.run([*program.split(), "migrate", "--config", str(config)], check=True, capture_output=True)
    old = backups / "2020-01-01T030000Z"
    old.mkdir(parents=True)
    os.utime(old, (0, 0))
    text = (DEPLOY / BACKUP).read_text("utf-8").replace("/opt/heliograph/bin/heliograph", program)
    text = text.replace("/etc/heliograph/heliograph.toml", str(config)).replace("%%", "%")
    for line in re.findall("^ExecStart(?:Post)?=(.+)$", text, re.M):
        environment = os.environ | {"BACKUPS": str(backups), "KEEP_DAYS": "14"}
        subprocess.run(shlex.split(line), check=True, capture_output=True, env=environment)
    (created,) = backups.iterdir()
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d{6}Z", created.name) and (created / "heliograph.db").exists()


def test_the_timer_runs_the_backup_unit_and_both_are_documented() -> None:
    assert TIMER.removesuffix(".timer") == BACKUP.removesuffix(".service")  # the unit that a timer runs by default
    timer = (DEPLOY / TIMER).read_text("utf-8")
    calendar = re.search("^OnCalendar=(.+)$", timer, re.M)
    assert calendar and analyze("calendar", calendar[1])
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    assert BACKUP in page and f"systemctl enable --now {TIMER}" in page


# -- compose -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMPOSE)
def test_compose_file_is_valid(name: str) -> None:
    read = yaml.safe_load((DEPLOY / name).read_text("utf-8"))
    for service in read["services"].values():
        if service["image"] == OURS:
            assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["stop_grace_period"] == "75s"
            assert set(service["secrets"]) <= read["secrets"].keys()
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert (DEPLOY / source).exists() if source.startswith("./") else source in read["volumes"]
    files = {secret["file"] for secret in read.get("secrets", {}).values()}
    assert files <= NO_FILES
    for included in read.get("include", []):
        assert included in COMPOSE


@pytest.mark.parametrize("name", COMPOSE)
def test_setting_given_as_a_file_is_not_in_the_image(name: str) -> None:
    """The service does not start if a setting is present both as a value and as a file."""
    of_image = set(re.findall(rf"\b({VARIABLE_PREFIX}[A-Z_]+)=", (DEPLOY / "Dockerfile").read_text("utf-8")))
    services = yaml.safe_load((DEPLOY / name).read_text("utf-8"))["services"].values()
    values = {setting for item in services if item["image"] == OURS for setting in item["environment"]}
    assert of_image and {f"{setting}_FILE" for setting in of_image | values} & (of_image | values) == set()


def test_the_image_is_given_all_that_the_wheel_is_made_of() -> None:
    links = [path.resolve().relative_to(ROOT) for path in (ROOT / "src").rglob("*") if path.is_symlink()]
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*map(str, links), *wheel["force-include"], *wheel["packages"], "pyproject.toml", "README.md", "LICENSE"}
    copied = re.findall(r"^COPY ((?!--).+) \S+$", (DEPLOY / "Dockerfile").read_text("utf-8"), re.M)
    let_in = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text("utf-8"), re.M)
    for places in ([item for line in copied for item in line.split()], let_in):
        assert [item for item in needed if not item.startswith(tuple(places))] == []


def test_deploy_images_name_a_full_version() -> None:
    """Image tags name a full version, so that a later build uses the same images as the tested one."""
    texts = [(DEPLOY / name).read_text("utf-8") for name in (*COMPOSE, "Dockerfile", "helm/values.yaml")]
    images = {image for text in texts for image in re.findall(r"^(?: *image: |ARG BASE=)(\S+)", text, re.M)}
    assert len(images) > 5
    assert [image for image in images if not re.search(r":v?\d+\.\d+(\.\d+|$)", image)] == []


def test_prometheus_scrapes_every_role() -> None:
    if shutil.which("promtool") is None:
        miss("what Prometheus asks", "promtool is not installed")
    subprocess.run(["promtool", "check", "config", DEPLOY / "prometheus.yaml"], check=True, capture_output=True)
    requested = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text("utf-8"))["scrape_configs"][0]["dns_sd_configs"]
    services = yaml.safe_load((DEPLOY / "compose.postgres.yaml").read_text("utf-8"))["services"]
    assert {name for item in requested for name in item["names"]} == {
        n for n, s in services.items() if s["image"] == OURS
    }
    assert (requested[0]["port"], f":{requested[1]['port']}") == (Settings().port, services["worker"]["command"][-1])


# -- Helm --------------------------------------------------------------------------------------------------


def pods(objects: list[Any]) -> list[Any]:
    return [item["spec"]["template"]["spec"] for item in objects if item["kind"] in ("Deployment", "Job")]


@pytest.mark.parametrize(("values", "more"), [(VALUES, set()), (ALL, {"PodMonitor"})], ids=["defaults", "all"])
def test_helm_chart_renders_valid_objects(values: dict[str, Any], more: set[str]) -> None:
    objects = rendered(values)
    assert {item["kind"] for item in objects} == {
        *("ConfigMap", "Deployment", "Service", "Job", "PodDisruptionBudget", "HorizontalPodAutoscaler"),
        *more,
    }
    assert [pod["containers"][0]["args"] for pod in pods(objects)] == [
        *(["serve", "--role", "api"], ["migrate"], ["serve", "--role", "worker", "--health", ":8701"]),
    ]
    serving = {port["name"]: c for pod in pods(objects) for c in pod["containers"] for port in c.get("ports", [])}
    for name, container in serving.items():
        probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]
        assert [(probe["path"], probe["port"]) for probe in probes] == [
            *(("/healthz", name), ("/readyz", name), ("/healthz", name)),
        ]
        # Longer than the second that /readyz waits for the database.
        assert all(container[f"{kind}Probe"]["timeoutSeconds"] > 1 for kind in ("startup", "readiness", "liveness"))
    monitored = [item["spec"]["podMetricsEndpoints"] for item in objects if item["kind"] == "PodMonitor"]
    assert all({endpoint["port"] for endpoint in endpoints} == serving.keys() for endpoints in monitored)
    for pod in pods(objects):
        [container] = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
        assert pod["enableServiceLinks"] is False  # HELIOGRAPH_PORT would be an unknown setting
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert (chart["appVersion"], values["image"]) == (__version__, OURS)
    # Values chosen by the operator
    assert not {"HELIOGRAPH_TRUSTED_PROXIES", "HELIOGRAPH_METRICS_ALLOW"} & values["settings"].keys()
    import kubernetes_validate  # takes two seconds, which no other test should wait for

    for item in objects:
        if item["kind"] != "PodMonitor":  # not a type of Kubernetes itself
            kubernetes_validate.validate(item, kubernetes_validate.latest_version(), strict=True)


def test_plain_manifests_equal_the_rendered_chart() -> None:
    folder = DEPLOY / "kubernetes"
    assert {path.name: path.read_text("utf-8") for path in folder.iterdir()} == manifests(), "make manifests"
    plain = [item for text in manifests().values() for item in yaml.safe_load_all(text)]
    by_chart = {(item["kind"], item["metadata"]["name"]): item.get("spec") for item in rendered(VALUES)}
    assert {(item["kind"], item["metadata"]["name"]): item.get("spec") for item in plain} == by_chart
