"""The compose files and the manifests of Kubernetes, run by an engine of containers: networks, mounts, limits."""

import json
import os
import shutil
import signal
import subprocess
import venv
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart import ALL, CHART, DEPLOY, manifests, rendered
from tests.npm import miss
from tests.proof.engine import Engine
from tests.proof.size import report
from tests.proof.test_image import GRACE_S, MAIL, SETUP, USER, known_here
from tests.service import until
from tests.test_deploy import COMPOSE, OURS, pods
from tests.test_dist import ROOT

SECRETS = {
    "secret": b64encode(bytes(32)).decode(),
    "database": "postgresql://heliograph:hush@postgres/heliograph",
    "postgres": "hush",
    "grafana": "hush",
}
# Run in a container: a request, and what was answered.
ASK = """
import json, ssl, sys, urllib.request
url, key, body = sys.argv[1:]
headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
request = urllib.request.Request(url, body.encode() or None, headers)
print(urllib.request.urlopen(request, context=ssl._create_unverified_context()).read().decode())
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """With our image, built by `make image`, and the stand-ins of others."""
    engine = Engine(tmp_path_factory.mktemp("engine"))
    try:
        known = known_here(tmp_path_factory.mktemp("wheels"))
        engine.run("make", "-C", str(ROOT), "image", "ENGINE=podman", more=known)
        engine.make_stand_ins(Path(known["BASE"]))
        yield engine
    finally:
        engine.close()


@pytest.fixture(scope="module")
def composer(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("composer")
    venv.create(folder, with_pip=True)
    if subprocess.run([folder / "bin/pip", "install", "-q", "podman-compose"], capture_output=True).returncode:
        miss("the compose files", "podman-compose cannot be installed here")
    return str(folder / "bin" / "podman-compose")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of deploy/, with the operator's secrets as docs/deploy.md has them made."""
    folder = shutil.copytree(DEPLOY, tmp_path / "deploy")
    (folder / "secrets").mkdir()
    for name, text in SECRETS.items():
        (folder / "secrets" / name).write_text(text)
        os.chown(folder / "secrets" / name, int(USER), int(USER))
    return folder


def ask(engine: Engine, container: str, url: str, key: str = "", body: Any = "") -> Any:
    said = engine.run("podman", "exec", container, "python3", "-c", ASK, url, key, body and json.dumps(body))
    return json.loads(said)


def deliver(engine: Engine, container: str, url: str, by: str) -> None:
    """A message that is accepted there, asked from another container."""
    engine.run("podman", "exec", "-i", container, "heliograph", "apply", "-", given=SETUP)
    create = ("heliograph", "key", "create", "--team", "team_a", "--name", "k")
    key = engine.run("podman", "exec", container, *create).split()[-1]
    sent = ask(engine, by, f"{url}/v1/emails", key, MAIL)["id"]
    until(lambda: ask(engine, by, f"{url}/v1/emails/{sent}", key)["status"] == "delivered")


def stopped(engine: Engine, *containers: str) -> None:
    """Within their grace, by themselves."""
    engine.run("podman", "stop", "--time", str(GRACE_S), *containers)
    codes = engine.run("podman", "inspect", "-f", "{{.State.ExitCode}}", *containers).split()
    assert set(codes) == {"0"}


@pytest.mark.parametrize("file", COMPOSE)
def test_compose_file_delivers_a_message(engine: Engine, composer: str, folder: Path, file: str) -> None:
    """All of it, by podman-compose: networks, secrets, volumes, limits, the order and health checks are the file's."""
    compose: Callable[..., str] = partial(engine.run, composer, "-f", str(folder / file), more={"DOMAIN": "localhost"})
    compose("up", "-d", "--no-build")
    try:
        running = json.loads(engine.run("podman", "ps", "--format", "json"))
        by_service = {one["Labels"]["com.docker.compose.service"]: one["Names"][0] for one in running}
        ours = [by_service[name] for name in ("heliograph", "worker") if name in by_service]
        checked = [*ours, *(by_service[name] for name in ("postgres",) if name in by_service)]
        for name in checked:
            until(lambda name=name: engine.succeeds("podman", "healthcheck", "run", name))
        for name in ours:
            [found] = json.loads(engine.run("podman", "inspect", name))
            host = found["HostConfig"]
            assert (host["ReadonlyRootfs"], host["Memory"], host["Init"]) == (True, 512 << 20, True)
            assert not found["EffectiveCaps"] and found["Config"]["User"] == f"{USER}:{USER}"
        caddy = by_service["caddy"]  # has looked whether the API is ready
        until(lambda: engine.succeeds("podman", "exec", caddy, "python3", "-c", ASK, "https://localhost/docs", "", ""))
        deliver(engine, by_service["heliograph"], "https://localhost", by=caddy)
        if "prometheus" in by_service:
            # It looks names up every 30 s, and asks every 15 s.
            until(lambda: watched(engine, by_service["prometheus"]) == {"heliograph:up", "worker:up"}, 180)
            assert is_running(engine, by_service["grafana"])
        os.kill(int(engine.run("podman", "inspect", "-f", "{{.State.Pid}}", by_service["heliograph"])), signal.SIGKILL)
        until(lambda: engine.succeeds("podman", "healthcheck", "run", by_service["heliograph"]))  # it is started again
        stopped(engine, *ours)
    finally:
        compose("down", "--volumes", "--timeout", "1")
    report(
        "image", f"{file}, by podman-compose: {', '.join(by_service)} run, and a message is delivered by way of Caddy"
    )


def watched(engine: Engine, prometheus: str) -> set[str]:
    """Whom it asks, by the name that it looked up, and whether they answer."""
    targets = ask(engine, prometheus, "http://127.0.0.1:9090/api/v1/targets")["data"]["activeTargets"]
    return {f"{one['discoveredLabels']['__meta_dns_name']}:{one['health']}" for one in targets}


def is_running(engine: Engine, name: str) -> bool:
    return engine.run("podman", "inspect", "-f", "{{.State.Running}}", name).strip() == "true"


def test_manifests_run_in_order_and_deliver_a_message(engine: Engine, folder: Path) -> None:
    """Every pod by its own command, settings, mounts and user; its probes answer, the Job ends."""
    objects = [one for text in manifests().values() for one in yaml.safe_load_all(text)]
    [settings] = [one["data"] for one in objects if one["kind"] == "ConfigMap"]
    password = ("-e", "POSTGRES_USER=heliograph", "-e", "POSTGRES_PASSWORD_FILE=/run/secrets/postgres")
    secret = ("-v", f"{folder}/secrets/postgres:/run/secrets/postgres:ro")
    engine.run("podman", "network", "create", "cluster")
    engine.run("podman", "run", "-d", "--name", "postgres", "--network", "cluster", *password, *secret, "postgres:17.6")
    serving = dict[str, str]()
    try:
        until(lambda: engine.succeeds("podman", "exec", "postgres", "pg_isready", "-h", "postgres", "-U", "heliograph"))
        for pod in sorted(pods(objects), key=lambda pod: "restartPolicy" not in pod):  # the Job first
            [container] = pod["containers"]
            detached = () if "restartPolicy" in pod else ("-d",)
            engine.run("podman", "run", "--name", container["name"], *detached, *as_pod(pod, settings, folder))
            for port in container.get("ports", []):
                serving[container["name"]] = f"http://{container['name']}:{port['containerPort']}"
        for name, url in serving.items():
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                [path] = {
                    one[probe]["httpGet"]["path"]
                    for pod in pods(objects)
                    for one in pod["containers"]
                    if one["name"] == name
                }
                until(
                    lambda at=url + path: engine.succeeds(
                        "podman", "exec", "postgres", "python3", "-c", ASK, at, "", ""
                    )
                )
        deliver(engine, "api", serving["api"], by="postgres")
        stopped(engine, *serving)
    finally:
        engine.run("podman", "rm", "--all", "--force", "--volumes", "--time", "1")
        engine.run("podman", "network", "rm", "cluster")
    report("image", f"the manifests' {', '.join(['migrate', *serving])} run in their order, and a message is delivered")


def as_pod(pod: Any, settings: dict[str, str], folder: Path) -> list[str]:
    """A pod's one container in words of podman."""
    [container] = pod["containers"]
    places = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    safe, who = container["securityContext"], pod["securityContext"]
    assert container["image"] == OURS and safe["readOnlyRootFilesystem"] and not safe["allowPrivilegeEscalation"]
    words = ["--network", "cluster", "--read-only", "--security-opt", "no-new-privileges"]
    words += ["--user", f"{who['runAsUser']}:{who['runAsGroup']}", "--cap-drop", *safe["capabilities"]["drop"]]
    for volume in pod["volumes"]:
        source = folder / "secrets"
        if "emptyDir" in volume:
            source = folder / f"{container['name']}-{volume['name']}"
            source.mkdir()
            os.chown(source, 0, who["fsGroup"])
            source.chmod(0o2777)
        words += ["-v", f"{source}:{places[volume['name']]}{':ro' if 'secret' in volume else ''}"]
    limits = container.get("resources", {}).get("limits", {})
    words += ["--memory", limits["memory"].removesuffix("i").lower()] if limits else []
    words += [word for name, value in settings.items() for word in ("-e", f"{name}={value}")]
    return [*words, container["image"], *container["args"]]


@pytest.mark.parametrize("program", ["helm", "go"])
def test_helm_chart_renders_as_the_reference(program: str, tmp_path: Path) -> None:
    """Our own reading of it is Helm's, and that of Go's text/template, which Helm fills charts with."""
    if not shutil.which(program):
        miss("the chart", f"{program} is not installed")
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(ALL))
    (tmp_path / "values.json").write_text(json.dumps({"Values": ALL, "Release": {"Name": "heliograph"}}))
    command: dict[str, list[str | Path]] = {
        "helm": ["helm", "template", "heliograph", CHART, "-f", tmp_path / "values.yaml"],
        "go": ["go", "run", ROOT / "tests/judges/chart.go", tmp_path / "values.json", *(CHART / "templates").iterdir()],
    }
    made = subprocess.check_output(command[program], text=True, env=os.environ | {"GOCACHE": str(tmp_path / "go")})
    found = [json.dumps(one, sort_keys=True) for one in yaml.safe_load_all(made) if one]
    assert sorted(found) == sorted(json.dumps(one, sort_keys=True) for one in rendered(ALL))
    report("image", f"{program} makes the same {len(found)} objects of the chart as the tests do")
