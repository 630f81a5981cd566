"""The proxy examples in deploy/, run by the real programs, with and without a ready process behind the proxy."""

import http.client
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from heliograph.settings import VARIABLE_PREFIX
from tests.carriers.smtp_peer import Authority
from tests.npm import miss
from tests.service import Answer, Service, free_port, until

DEPLOY = Path(__file__).parents[1] / "deploy"
NAME, AUTHORITY = "mail.example.com", Authority()
LETS_ENCRYPT = f"/etc/letsencrypt/live/{NAME}"
BODY = {"from": "hi@acme.test", "to": "delivered@simulator.test", "subject": "Hi", "text": "Hi"}


def command(name: str, port: int, upstream: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command and environment to run a program as a proxy before a process at `upstream`."""
    program = shutil.which(name) or shutil.which(name, path="/usr/sbin") or miss(name, f"{name} is not installed")
    match name:
        case "haproxy":
            places = {"PROXY_LISTEN": port, "PROXY_SERVER_ONE": upstream, "PROXY_SERVER_TWO": upstream}
            events = {name: f"127.0.0.1:{at}" for name, at in places.items()}
            return [program, "-q", "-db", "-f", str(DEPLOY / "haproxy.cfg")], events
        case "caddy":
            # Of a plain address it wants no certificate.
            events = {"DOMAIN": f"http://127.0.0.1:{port}", "UPSTREAM": f"127.0.0.1:{upstream}"}
            config = (DEPLOY / "Caddyfile").read_text("utf-8")
            (folder / "Caddyfile").write_text("{\n\tadmin off\n}\n" + config)
            arguments = [program, "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]
            return arguments, events | {"HOME": str(folder), "XDG_DATA_HOME": str(folder)}
        case _:
            site = (DEPLOY / "nginx.conf").read_text("utf-8")
            (folder / "both.pem").write_bytes(AUTHORITY.pem(NAME)[0])
            changes = {
                "127.0.0.1:8700": f"127.0.0.1:{upstream}",
                "listen 80;": f"listen unix:{folder}/80;",
                "listen 443 ssl;": f"listen unix:{folder}/443 ssl; listen 127.0.0.1:{port};",
                f"{LETS_ENCRYPT}/fullchain.pem": f"{folder}/both.pem",
                f"{LETS_ENCRYPT}/privkey.pem": f"{folder}/both.pem",
            }
            for was, here in changes.items():
                assert site.count(was) == 1
                site = site.replace(was, here)
            logs = f"pid {folder}/pid; error_log {folder}/errors; daemon off; events {{}}"
            (folder / "nginx.conf").write_text(f"{logs} http {{ access_log off; {site} }}")
            return [program, "-p", str(folder), "-c", str(folder / "nginx.conf")], {}


def test_shipped_haproxy_configuration_is_valid_and_its_variables_are_no_settings() -> None:
    arguments, variables = command("haproxy", 1, 1, DEPLOY)
    without = {name: value for name, value in os.environ.items() if name not in variables}
    done = subprocess.run([arguments[0], "-c", "-f", arguments[-1]], capture_output=True, text=True, env=without)
    assert done.returncode == 0, done.stderr
    used = set(re.findall(r"\$\{(\w+)\}", Path(arguments[-1]).read_text("utf-8"))) - {"NOBODY"}
    assert used == set(variables) and not any(name.startswith(VARIABLE_PREFIX) for name in used)
    page = (DEPLOY.parent / "docs" / "high-availability.md").read_text("utf-8")
    assert [name for name in used if f"`{name}`" not in page] == []


@contextmanager
def running(name: str, upstream: int, folder: Path) -> Iterator[int]:
    port = free_port()
    arguments, events = command(name, port, upstream, folder)
    with open(folder / "said", "wb") as output:
        process = subprocess.Popen(arguments, env=os.environ | events, stdout=output, stderr=output)
    try:
        yield port
    finally:
        process.terminate()
        process.wait()


Before = Callable[[int], AbstractContextManager[int]]  # the port of a process → the proxy's


@pytest.fixture(params=["haproxy", "caddy", "nginx"])
def proxy(request: pytest.FixtureRequest, tmp_path: Path) -> Before:
    return lambda upstream: running(request.param, upstream, tmp_path)


def answer(service: Service, port: int) -> Answer | None:
    """Return the proxy's response; None if the proxy is not listening yet."""
    try:
        return service.post("/v1/emails", BODY, port=port)
    except ConnectionError:
        return None


def test_proxy_forwards_requests_and_client_address(proxy: Before, shared_service: Service) -> None:
    with proxy(shared_service.ports[-1]) as port:
        accepted = until(lambda: (result := answer(shared_service, port)) and result.status != 503 and result)
        assert accepted.status == 202
        assert shared_service.get("/metrics", port=port).status == 404
        own = shared_service.ask("POST", "/v1/emails", {}, port=port)  # the service's own error passes as it is
        assert (own.status, own.code) == (400, "missing_body")


def test_proxy_without_a_backend_answers_503(proxy: Before, shared_service: Service) -> None:
    with socket.socket() as nobody:  # who has the port, and does not listen
        nobody.bind(("127.0.0.1", 0))
        with proxy(nobody.getsockname()[1]) as port:
            refused = until(lambda: answer(shared_service, port))
    assert refused.status == 503
    ours = shared_service.get("/nothing").json["error"]
    assert refused.code == "service_unavailable"
    assert refused.json["error"].keys() == ours.keys()
    assert refused.json["error"]["request_id"] == refused.headers["x-request-id"]
    assert refused.headers["content-type"].startswith("application/json")
    assert int(refused.headers["retry-after"]) >= 1


def test_nginx_serves_tls_with_its_certificate(tmp_path: Path) -> None:
    """Caddy obtains its certificate automatically, and HAProxy's example has none."""

    def get(place: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(NAME)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(tmp_path / place))
        if place == "443":
            connection.sock = AUTHORITY.trusted().wrap_socket(connection.sock, server_hostname=NAME)
        connection.request("GET", "/v1/me?a=b")
        return connection.getresponse()

    with running("nginx", free_port(), tmp_path):
        until((tmp_path / "443").exists)
        plain, secure = get("80"), get("443")
        assert (plain.status, plain.headers["Location"]) == (308, f"https://{NAME}/v1/me?a=b")
        assert (secure.status, secure.headers["Retry-After"]) == (503, "1")
