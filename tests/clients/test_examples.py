"""The programs of examples/, unchanged, with the service."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.clients.test_typescript import CLIENT, environment_of
from tests.npm import miss
from tests.service import Service, free_port, until

EXAMPLES = Path(__file__).parents[2] / "examples"
FROM = {"HELIOGRAPH_FROM": "a@acme.test"}
PATHS = {"PYTHONPATH": str(EXAMPLES.parent / "clients/python/src"), "PYTHONDONTWRITEBYTECODE": "1"}
PYTHON = sys.executable


@pytest.mark.parametrize(("name", "status", "code"), [("delivered", "delivered", 0), ("bounced", "bounced", 1)])
def test_shell_example_sends_once_and_reports_the_result(
    shared_service: Service, name: str, status: str, code: int
) -> None:
    for program in ("curl", "jq"):
        if not shutil.which(program):
            miss("the example for shells", f"{program} is not installed")
    command = [str(EXAMPLES / "shell" / "send.sh"), f"{name}@simulator.test", "Backup", f"It is {name}."]
    environment = environment_of(shared_service) | FROM
    first, repeated = (
        subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120) for _ in range(2)
    )
    assert (first.returncode, first.stdout.split()[1]) == (code, status), first.stderr
    assert repeated.stdout == first.stdout, "nothing is sent twice"


def express(tmp_path: Path) -> Path:
    """Return the shop's folder as in a checkout, with its dependencies installed by its own command."""
    ignored = shutil.ignore_patterns("node_modules", "dist")
    shutil.copytree(CLIENT, tmp_path / "clients/typescript", ignore=ignored)
    folder = tmp_path / "examples/express"
    shutil.copytree(EXAMPLES / "express", folder, ignore=ignored)
    process = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund"], cwd=folder, capture_output=True, timeout=300
    )
    if process.returncode:
        miss("the example for Express", f"npm install failed ({process.stderr.decode()[:200]})")
    return folder


@contextmanager
def opened(service: Service, folder: Path, command: str) -> Iterator[str]:
    """Yield the address of a shop that receives the events of its mails."""
    port = free_port()
    hook = {"url": f"http://127.0.0.1:{port}/webhooks", "events": ["email.bounced"]}
    created = service.post("/v1/webhooks", hook).json
    environment = environment_of(service) | FROM | {"WEBHOOK_SECRET": created["secret"], "PORT": str(port)}
    server = subprocess.Popen(command.replace("PORT", str(port)).split(), cwd=folder, env=environment | PATHS)
    try:
        until(lambda: is_open(port) or server.poll() is not None)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()
        service.ask("DELETE", f"/v1/webhooks/{created['id']}")


def is_open(port: int) -> bool:
    with socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def order(shop: str, id_: str, email: str) -> tuple[int, str]:
    body = json.dumps({"email": email}).encode()
    try:
        with urlopen(Request(f"{shop}/orders/{id_}", body, {"Content-Type": "application/json"})) as answer:
            return answer.status, json.load(answer)["mail"]
    except HTTPError as error:
        return error.code, json.load(error)["error"]


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("express", "node server.mjs"),
        ("flask", f"{PYTHON} -m flask --app shop run --port PORT"),
        ("fastapi", f"{PYTHON} -m uvicorn shop:app --port PORT"),
        ("django", f"{PYTHON} shop.py runserver --noreload PORT"),
    ],
    ids=["express", "flask", "fastapi", "django"],
)
def test_shop_example_sends_receipts_and_verifies_webhooks(
    shared_service: Service, tmp_path: Path, name: str, command: str
) -> None:
    folder = express(tmp_path) if name == "express" else EXAMPLES / name
    with opened(shared_service, folder, command) as shop:
        receipt = (shop, f"{name}1", f"bounced+{name}@simulator.test")
        status, first = order(*receipt)
        assert (status, first[:4]) == (200, "eml_")
        repeated = until(lambda: (answer := order(*receipt)) != (200, first) and answer)
        assert repeated == (409, "This address bounced."), "nothing is sent twice"
        assert order(shop, f"{name}2", "nobody") == (502, "invalid_email")
        with pytest.raises(HTTPError, match="400"):
            urlopen(Request(f"{shop}/webhooks", b"{}"))
