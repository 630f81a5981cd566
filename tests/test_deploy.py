"""The files of deploy/: what can be judged without the machines that they are for."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from heliograph import __version__
from heliograph.settings import NAMES, PREFIX, Settings
from tests.npm import miss

DEPLOY = Path(__file__).parents[1] / "deploy"
UNITS = ["heliograph.service", "heliograph-worker@.service"]
EXPOSURE_MAX = 2.0
OURS = f"heliograph:{__version__}"
COMPOSE = sorted(path.name for path in DEPLOY.glob("compose.*.yaml"))
NO_FILES = {f"./secrets/{name}" for name in ("secret", "database", "postgres", "grafana")}  # the operator's own


def test_every_setting_in_them_exists() -> None:
    texts = [path.read_text("utf-8") for path in DEPLOY.rglob("*") if path.is_file()]
    used = {name for text in texts for name in re.findall(rf"\b{PREFIX}([A-Z_]+)(?=[:=])", text)}
    assert {name.lower().removesuffix("_file") for name in used} - {*NAMES, "config"} == set()
    assert used


# -- systemd -----------------------------------------------------------------------------------------------


def analyze(*arguments: str) -> str:
    if shutil.which("systemd-analyze") is None:
        miss("the units", "systemd-analyze is not installed")
    done = subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("unit", UNITS)
def test_units(unit: str, tmp_path: Path) -> None:
    text = (DEPLOY / unit).read_text("utf-8").replace("/opt/heliograph/bin/heliograph", sys.executable)
    (tmp_path / unit).write_text(text)
    assert analyze("verify", str(tmp_path / unit)) == ""
    exposure = re.search(
        r"exposure level for .*: ([0-9.]+)", analyze("security", "--offline=true", str(tmp_path / unit))
    )
    assert exposure and float(exposure[1]) <= EXPOSURE_MAX


def test_the_units_differ_in_what_they_run_alone() -> None:
    one, worker = ((DEPLOY / unit).read_text("utf-8").splitlines() for unit in UNITS)
    differing = {line.partition("=")[0] for line in {*one} ^ {*worker} if not line.startswith("#")}
    assert differing == {"Description", "ExecStart"}


# -- compose -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMPOSE)
def test_compose_files(name: str) -> None:
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
def test_what_is_given_as_a_file_is_not_in_the_image(name: str) -> None:
    """Nobody starts with both."""
    of_image = set(re.findall(rf"\b({PREFIX}[A-Z_]+)=", (DEPLOY / "Dockerfile").read_text("utf-8")))
    services = yaml.safe_load((DEPLOY / name).read_text("utf-8"))["services"].values()
    given = {setting for one in services if one["image"] == OURS for setting in one["environment"]}
    assert of_image and {f"{setting}_FILE" for setting in of_image | given} & (of_image | given) == set()


def test_images_do_not_float() -> None:
    """A tag that names a whole version: what is built tomorrow is what was tried."""
    texts = [(DEPLOY / name).read_text("utf-8") for name in (*COMPOSE, "Dockerfile", "helm/values.yaml")]
    images = {image for text in texts for image in re.findall(r"^(?: *image: |ARG BASE=)(\S+)", text, re.M)}
    assert len(images) > 5
    assert [image for image in images if not re.search(r":v?\d+\.\d+(\.\d+|$)", image)] == []


def test_prometheus_asks_every_role() -> None:
    if shutil.which("promtool") is None:
        miss("what Prometheus asks", "promtool is not installed")
    subprocess.run(["promtool", "check", "config", DEPLOY / "prometheus.yaml"], check=True, capture_output=True)
    asked = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text("utf-8"))["scrape_configs"][0]["dns_sd_configs"]
    services = yaml.safe_load((DEPLOY / "compose.postgres.yaml").read_text("utf-8"))["services"]
    assert {name for one in asked for name in one["names"]} == {n for n, s in services.items() if s["image"] == OURS}
    assert (asked[0]["port"], f":{asked[1]['port']}") == (Settings().port, services["worker"]["command"][-1])


# -- Helm --------------------------------------------------------------------------------------------------

CHART = DEPLOY / "helm"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
ALL = VALUES | {"podMonitor": True}
ALL["worker"] = VALUES["worker"] | {"scaleByOldestSeconds": True}


def rendered(values: dict[str, Any]) -> list[Any]:
    """All objects of the chart, by the few words of Helm that it uses; Helm itself is not to be had here."""

    def value(path: str) -> Any:
        found: Any = {"Values": values, "Release": {"Name": "mail"}}
        for name in path.strip(".").split("."):
            found = found[name]
        return found

    def filled(found: re.Match[str]) -> str:
        match found[1].split():
            case ["toYaml", path, "|", "indent", width]:
                return "\n".join(" " * int(width) + line for line in yaml.safe_dump(value(path)).splitlines())
            case [path, "|", "quote"]:
                return f'"{value(path)}"'
            case [path]:
                return str(value(path))
        raise AssertionError(f"{found[0]} is not understood")

    objects = []
    for file in sorted((CHART / "templates").iterdir()):
        text = re.sub(
            r"\s*\{\{- if (\S+) \}\}(.*?)\s*\{\{- end \}\}",
            lambda found: found[2] if value(found[1]) else "",
            file.read_text("utf-8"),
            flags=re.S,
        )
        objects += yaml.safe_load_all(re.sub(r"\{\{ (.*?) \}\}", filled, text))
    return objects


@pytest.mark.parametrize(("values", "more"), [(VALUES, set()), (ALL, {"PodMonitor"})], ids=["defaults", "all"])
def test_the_chart(values: dict[str, Any], more: set[str]) -> None:
    objects = rendered(values)
    assert {one["kind"] for one in objects} == {
        *("ConfigMap", "Deployment", "Service", "Job", "PodDisruptionBudget", "HorizontalPodAutoscaler"),
        *more,
    }
    pods = [one["spec"]["template"]["spec"] for one in objects if one["kind"] in ("Deployment", "Job")]
    assert [pod["containers"][0]["args"] for pod in pods] == [
        *(["serve", "--role", "api"], ["migrate"], ["serve", "--role", "worker", "--health", ":8701"]),
    ]
    serving = {port["name"]: c for pod in pods for c in pod["containers"] for port in c.get("ports", [])}
    for name, container in serving.items():
        probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]
        assert [(probe["path"], probe["port"]) for probe in probes] == [
            *(("/healthz", name), ("/readyz", name), ("/healthz", name)),
        ]
        # Longer than the second that /readyz waits for the database.
        assert all(container[f"{kind}Probe"]["timeoutSeconds"] > 1 for kind in ("startup", "readiness", "liveness"))
    monitored = [one["spec"]["podMetricsEndpoints"] for one in objects if one["kind"] == "PodMonitor"]
    assert all({endpoint["port"] for endpoint in endpoints} == serving.keys() for endpoints in monitored)
    for pod in pods:
        [container] = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
        assert pod["enableServiceLinks"] is False  # HELIOGRAPH_PORT would be an unknown setting
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert (chart["appVersion"], values["image"]) == (__version__, OURS)
    assert (
        not {"HELIOGRAPH_TRUSTED_PROXIES", "HELIOGRAPH_METRICS_ALLOW"} & values["settings"].keys()
    )  # the operator's word
