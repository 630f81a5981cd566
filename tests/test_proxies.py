"""The proxies' examples in deploy/, run by the programs themselves: in front of a ready process, and of none."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.npm import miss
from tests.service import Answer, Service, free_port, until

DEPLOY = Path(__file__).parents[1] / "deploy"
BODY = {"from": "hi@acme.test", "to": "delivered@simulator.test", "subject": "Hi", "text": "Hi"}


def command(name: str, port: int, upstream: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    """As the program is run before one process at `upstream`, and its environment."""
    program = shutil.which(name) or shutil.which(name, path="/usr/sbin") or miss(name, f"{name} is not installed")
    match name:
        case "haproxy":
            places = {"BIND": port, "ONE": upstream, "TWO": upstream}
            told = {f"HELIOGRAPH_{name}": f"127.0.0.1:{at}" for name, at in places.items()}
            return [program, "-q", "-db", "-f", str(DEPLOY / "haproxy.cfg")], told
        case "caddy":
            # Of a plain address it wants no certificate.
            told = {"DOMAIN": f"http://127.0.0.1:{port}", "UPSTREAM": f"127.0.0.1:{upstream}"}
            config = (DEPLOY / "Caddyfile").read_text("utf-8")
            (folder / "Caddyfile").write_text("{\n\tadmin off\n}\n" + config)
            arguments = [program, "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]
            return arguments, told | {"HOME": str(folder), "XDG_DATA_HOME": str(folder)}
        case _:
            site = (DEPLOY / "nginx.conf").read_text("utf-8")
            for was, here in (("127.0.0.1:8700", f"127.0.0.1:{upstream}"), ("listen 80", f"listen 127.0.0.1:{port}")):
                assert was in site
                site = site.replace(was, here)
            logs = f"pid {folder}/pid; error_log {folder}/errors; daemon off; events {{}}"
            (folder / "nginx.conf").write_text(f"{logs} http {{ access_log off; {site} }}")
            return [program, "-p", str(folder), "-c", str(folder / "nginx.conf")], {}


Before = Callable[[int], AbstractContextManager[int]]  # the port of a process → the proxy's


@pytest.fixture(params=["haproxy", "caddy", "nginx"])
def proxy(request: pytest.FixtureRequest, tmp_path: Path) -> Before:
    @contextmanager
    def before(upstream: int) -> Iterator[int]:
        port = free_port()
        arguments, told = command(request.param, port, upstream, tmp_path)
        with open(tmp_path / "said", "wb") as said:
            running = subprocess.Popen(arguments, env=os.environ | told, stdout=said, stderr=said)
        try:
            yield port
        finally:
            running.terminate()
            running.wait()

    return before


def answer(service: Service, port: int) -> Answer | None:
    """None: the proxy is not there yet."""
    try:
        return service.post("/v1/emails", BODY, port=port)
    except ConnectionError:
        return None


def test_through_it(proxy: Before, shared_service: Service) -> None:
    with proxy(shared_service.ports[-1]) as port:
        accepted = until(lambda: (found := answer(shared_service, port)) and found.status != 503 and found)
        assert accepted.status == 202
        assert shared_service.get("/metrics", port=port).status == 404
        own = shared_service.ask("POST", "/v1/emails", {}, port=port)  # the service's own error passes as it is
        assert (own.status, own.code) == (400, "missing_body")


def test_before_nobody(proxy: Before, shared_service: Service) -> None:
    with proxy(free_port()) as port:
        refused = until(lambda: answer(shared_service, port))
    assert refused.status == 503
    ours = shared_service.get("/nothing").json["error"]
    assert refused.code == "service_unavailable"
    assert refused.json["error"].keys() == ours.keys()
    assert refused.json["error"]["request_id"] == refused.headers["x-request-id"]
    assert refused.headers["content-type"].startswith("application/json")
    assert int(refused.headers["retry-after"]) >= 1
