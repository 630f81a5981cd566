"""The programs of examples/, as they are, against the service."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.clients.test_typescript import environment_of, package  # noqa: F401
from tests.npm import miss
from tests.service import Service, free_port, until

EXAMPLES = Path(__file__).parents[2] / "examples"
FROM = {"HELIOGRAPH_FROM": "a@acme.test"}


@pytest.mark.parametrize(("name", "status", "code"), [("delivered", "delivered", 0), ("bounced", "bounced", 1)])
def test_shell(shared_service: Service, name: str, status: str, code: int) -> None:
    for program in ("curl", "jq"):
        if not shutil.which(program):
            miss("the example for shells", f"{program} is not installed")
    command = [str(EXAMPLES / "shell" / "send.sh"), f"{name}@simulator.test", "Backup", f"It is {name}."]
    environment = environment_of(shared_service) | FROM
    first, again = (
        subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120) for _ in range(2)
    )
    assert (first.returncode, first.stdout.split()[1]) == (code, status), first.stderr
    assert again.stdout == first.stdout, "nothing is sent twice"


@pytest.fixture
def shop(package: Path, shared_service: Service, tmp_path: Path) -> Iterator[str]:  # noqa: F811
    """The address of the shop, which is told what becomes of the mails."""
    shutil.copytree(package / "node_modules/heliograph-client", tmp_path / "clients/typescript", symlinks=True)
    folder = tmp_path / "examples/express"
    shutil.copytree(EXAMPLES / "express", folder)
    done = subprocess.run(["npm", "install", "--no-audit", "--no-fund"], cwd=folder, capture_output=True, timeout=180)
    if done.returncode:
        miss("the example for Express", f"npm install failed ({done.stderr.decode()[:200]})")
    port = free_port()
    hook = {"url": f"http://127.0.0.1:{port}/webhooks", "events": ["email.bounced"]}
    made = shared_service.post("/v1/webhooks", hook).json
    environment = environment_of(shared_service) | FROM | {"WEBHOOK_SECRET": made["secret"], "PORT": str(port)}
    server = subprocess.Popen(["node", "server.mjs"], cwd=folder, env=environment, stdout=subprocess.PIPE)
    try:
        assert server.stdout and server.stdout.readline().strip() == str(port).encode()
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()
        shared_service.ask("DELETE", f"/v1/webhooks/{made['id']}")


def order(shop: str, number: int, email: str) -> tuple[int, str]:
    body = json.dumps({"email": email}).encode()
    try:
        with urlopen(Request(f"{shop}/orders/{number}", body, {"Content-Type": "application/json"})) as answer:
            return answer.status, json.load(answer)["mail"]
    except HTTPError as error:
        return error.code, json.load(error)["error"]


def test_express(shop: str) -> None:
    status, first = order(shop, 1, "bounced+1@simulator.test")
    assert (status, first[:4]) == (200, "eml_")
    until(lambda: order(shop, 1, "bounced+1@simulator.test") == (409, "This address bounced."))
    assert order(shop, 2, "nobody") == (502, "invalid_email")
    with pytest.raises(HTTPError, match="400"):
        urlopen(Request(f"{shop}/webhooks", b"{}"))
