"""`compat_hosts`: another service's API at the root of a host."""

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from heliograph.compat.adapters import ADAPTERS
from heliograph.domain.setup.records import CompatService
from tests.service import TOKENS, Service, until

HOSTS = {f"{name}.acme.test": name for name in get_args(CompatService)}
HOST_ENTRIES = ", ".join(f'"{host.title()}" = "{name}"' for host, name in HOSTS.items())
SETUP = "[platform]\ncompat_hosts = {{ {} }}\n"
MAIL = {"from": "hello@acme.test", "to": ["delivered@simulator.test"], "subject": "Hi", "text": "Hello"}


@pytest.fixture(scope="module")
def hosting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("hosts")
    with Service(f"sqlite:///{folder / 'heliograph.db'}", folder / "data") as running:
        running.apply()
        file = folder / "hosts.toml"
        file.write_text(SETUP.format(HOST_ENTRIES))
        running.apply(file)
        running.start()
        yield running


def test_every_service_can_have_a_host() -> None:
    assert {f"/compat/{name}" for name in HOSTS.values()} == {
        adapter.prefix for adapter in ADAPTERS if adapter.prefix.startswith("/compat/")
    }


@pytest.mark.parametrize("host", ["resend.acme.test", "RESEND.acme.test:8443", "resend.acme.test."])
@pytest.mark.parametrize("path", ["/emails", "/compat/resend/emails"])
def test_calls_are_served_at_the_root_of_the_host(hosting: Service, host: str, path: str) -> None:
    sent = hosting.post(path, MAIL, headers={"Host": host})
    assert sent.status == 200, sent.raw
    response = hosting.get(f"/emails/{sent.json['id']}", headers={"Host": host})
    assert (response.status, response.json["object"]) == (200, "email")
    assert until(lambda: hosting.get("/compat/resend/logs").json["data"])


@pytest.mark.parametrize(
    ("host", "path", "status", "named"),
    [
        ("resend.acme.test", "/v1/emails", 404, "statusCode"),
        ("resend.acme.test", "/dashboard", 404, "statusCode"),
        ("postmark.acme.test", "/emails", 404, "ErrorCode"),
        ("twilio.acme.test", "/emails", 404, "more_info"),
        ("postal.acme.test", "/emails", 404, "data"),
        ("other.acme.test", "/emails", 404, "error"),
        ("", "/emails", 400, "error"),
    ],
)
def test_other_paths_of_the_host_return_404(hosting: Service, host: str, path: str, status: int, named: str) -> None:
    response = hosting.get(path, headers={"Host": host})
    assert response.status == status
    assert named in response.json


def test_other_hosts_are_unaffected(hosting: Service) -> None:
    body = {"From": "hello@acme.test", "To": "delivered@simulator.test", "Subject": "Hi", "TextBody": "Hello"}
    headers = {"Host": "postmark.acme.test", "X-Postmark-Server-Token": TOKENS["ACME"]}
    assert hosting.post("/email", body, key=None, headers=headers).json["ErrorCode"] == 0
    mail = {"from": "hello@acme.test", "to": ["delivered@simulator.test"], "subject": "Hi", "plain_body": "Hello"}
    headers = {"Host": "postal.acme.test", "X-Server-API-Key": TOKENS["ACME"]}
    assert hosting.post("/api/v1/send/message", mail, key=None, headers=headers).json["status"] == "success"


def test_an_invalid_host_changes_nothing(hosting: Service, tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    for setting in ('{ "a.test" = "sendgrid" }', '{ "no host" = "resend" }', '"resend"'):
        file.write_text(f"[platform]\ncompat_hosts = {setting}\n")
        refused = hosting.run("apply", str(file))
        assert refused.returncode != 0
        assert "platform.compat_hosts" in refused.stderr
    assert hosting.get("/emails", headers={"Host": "resend.acme.test"}).status == 200


def test_a_running_service_applies_the_change(hosting: Service, tmp_path: Path) -> None:
    file = tmp_path / "more.toml"
    file.write_text(SETUP.format(f'{HOST_ENTRIES}, "new.acme.test" = "resend"'))
    hosting.apply(file)
    assert until(lambda: hosting.get("/emails", headers={"Host": "new.acme.test"}).status == 200)
