"""Two cells behind HAProxy and Caddy: every kind of request reaches its cell, and a wrong cell answers 421."""

import email.message
import os
import re
import shutil
import signal
import smtplib
import subprocess
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import resend
from postmarker.core import PostmarkClient
from twilio.rest import Client

from heliograph.domain.setup.cells import basic_pattern
from heliograph.domain.setup.keys import make_token
from tests.cells import API_HOST, CELLS, DEPLOY, Cell, Cells, ask, is_ready, running_cells, running_proxy
from tests.compat.test_postmark import Proxy
from tests.conftest import fresh_database
from tests.npm import miss
from tests.postgres_server import MISSING, is_installed
from tests.service import PATIENCE_S, Answer, Service, free_port, until

pytestmark = pytest.mark.skipif(not is_installed(), reason=MISSING)

PROXIES = ("haproxy", "caddy")


@pytest.fixture(scope="module")
def cells(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cells]:
    folder = tmp_path_factory.mktemp("cells")
    with running_cells(fresh_database(postgres, "template1"), folder) as running:
        yield running


@pytest.fixture(scope="module", params=PROXIES)
def front(request: pytest.FixtureRequest, cells: Cells) -> Iterator[int]:
    """Yield the port of a proxy before the cells."""
    with running_proxy(request.param, cells, free_port()) as port:
        yield port


@pytest.fixture(params=CELLS)
def cell(request: pytest.FixtureRequest, cells: Cells) -> Cell:
    return cells.cells[request.param]


def mail_of(cell: Cell, **fields: Any) -> dict[str, Any]:
    return {
        "from": "hello@acme.test",
        "to": "delivered@simulator.test",
        "subject": f"Hello from {cell.mark}",
        "text": cell.mark,
        **fields,
    }


def subject_in(cell: Cell, id_: str) -> str:
    """Return the subject of a message, read from the process of the cell itself."""
    answer = cell.ask("GET", f"/v1/emails/{id_}", headers={"Authorization": f"Bearer {cell.key}"})
    assert answer.status == 200, answer.raw
    return str(answer.json["subject"])


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}


TWILIO_FORM = b"To=%2B15005550006&ContentSid=tpl_sms&ContentVariables=%7B%22parcel%22%3A%221%22%7D"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def send_by_twilio(user_length: int, cell: Cell, port: int) -> Answer:
    headers = {"Host": API_HOST, **FORM, **basic("A" * user_length, cell.key)}
    return ask("POST", "/compat/twilio/2010-04-01/Accounts/AC1/Messages.json", TWILIO_FORM, headers, port)


# Kind of request → its call through the front with the key of a cell.
KEYED: dict[str, Callable[[Cell, int], Answer]] = {
    "api": lambda cell, port: ask("POST", "/v1/emails", mail_of(cell), host_and_bearer(cell), port),
    "lower case": lambda cell, port: ask(
        "POST", "/v1/emails", mail_of(cell), {"Host": API_HOST, "authorization": f"bearer {cell.key}"}, port
    ),
    "mcp": lambda cell, port: ask(
        "POST",
        "/mcp",
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        {"Host": API_HOST, "Authorization": f"Bearer {cell.tokens['AGENT']}", "Accept": "application/json"},
        port,
    ),
    "resend": lambda cell, port: ask("POST", "/compat/resend/emails", mail_of(cell), host_and_bearer(cell), port),
    "postmark": lambda cell, port: ask(
        "POST",
        "/compat/postmark/email",
        {"From": "hello@acme.test", "To": "delivered@simulator.test", "Subject": cell.mark, "TextBody": "Hi"},
        {"Host": API_HOST, "X-Postmark-Server-Token": cell.key, "Accept": "application/json"},
        port,
    ),
    "postal": lambda cell, port: ask(
        "POST",
        "/compat/postal/api/v1/send/message",
        {"from": "hello@acme.test", "to": ["delivered@simulator.test"], "subject": cell.mark, "plain_body": "Hi"},
        {"Host": API_HOST, "X-Server-API-Key": cell.key},
        port,
    ),
    **{f"twilio with a user name of {length}": partial(send_by_twilio, length) for length in (34, 35, 36)},
}


def host_and_bearer(cell: Cell) -> dict[str, str]:
    return {"Host": API_HOST, "Authorization": f"Bearer {cell.key}"}


@pytest.mark.parametrize("kind", KEYED)
def test_request_with_a_key_reaches_its_cell_through_the_front(front: int, cell: Cell, kind: str) -> None:
    answer = KEYED[kind](cell, front)
    assert answer.status in (200, 201, 202), answer.raw


@pytest.mark.parametrize("kind", KEYED)
def test_request_with_a_key_of_another_cell_gets_421(cells: Cells, cell: Cell, kind: str) -> None:
    answer = KEYED[kind](cell, cells.cells[cell.other].port)
    assert answer.status == 421
    assert cell.name in answer.raw.decode()


def test_programs_of_other_services_work_unchanged(front: int, cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{front}"
    monkeypatch.setattr(resend, "api_key", cell.key)
    monkeypatch.setattr(resend, "api_url", f"{url}/compat/resend")
    sent = resend.Emails.send(mail_of(cell))  # type: ignore[arg-type]
    assert subject_in(cell, sent["id"]) == f"Hello from {cell.mark}"
    postmark = PostmarkClient(server_token=cell.key, root_api_url=url)
    postmark.session.mount(url, Proxy())
    fields = {"From": "hello@acme.test", "To": "delivered@simulator.test", "Subject": cell.mark, "TextBody": "Hi"}
    assert subject_in(cell, postmark.emails.send(**fields)["MessageID"]) == cell.mark
    twilio = Client("AC0123456789", cell.key)
    twilio.api.base_url = f"{url}/compat/twilio"
    message = twilio.messages.create(to="+15005550006", content_sid="tpl_sms", content_variables='{"parcel": "1"}')
    assert message.sid.startswith("sms_")


def test_request_without_a_key_reaches_the_cell_of_its_host_name(front: int, cell: Cell) -> None:
    challenge = f"/carriers/meta/callback?hub.mode=subscribe&hub.verify_token=verify-{cell.mark}&hub.challenge=47"
    for host in (cell.host, cell.host.upper(), f"{cell.host}:{front}"):
        assert cell.ask("GET", challenge, host=host, port=front).raw == b"47"
    page = cell.ask("GET", "/dashboard/operator", headers=cell.cookie, port=front)
    assert page.status == 200 and f"Acme {cell.mark}" in page.raw.decode()
    link = unsubscribe_path(cell)
    assert cell.ask("POST", link, b"List-Unsubscribe=One-Click", FORM, port=front).status == 200
    blocked = cell.ask("GET", "/v1/unsubscribes", headers={"Authorization": f"Bearer {cell.key}"})
    assert [entry["address"] for entry in blocked.json["data"]] == ["delivered@simulator.test"]
    cell.ask("DELETE", "/v1/unsubscribes/delivered@simulator.test", headers={"Authorization": f"Bearer {cell.key}"})


def unsubscribe_path(cell: Cell) -> str:
    body = mail_of(cell, category="newsletter", text="Bye: {{unsubscribe_url}}")
    preview = cell.ask("POST", "/v1/emails?dry_run=true", body, {"Authorization": f"Bearer {cell.key}"})
    assert preview.status == 200, preview.raw
    match = re.search(rf"http://{cell.host}:\d+(/unsubscribe/[\w-]+)", preview.json["text"])
    assert match
    return match[1]


def test_request_for_another_host_name_changes_nothing(cells: Cells, cell: Cell) -> None:
    other = cells.cells[cell.other]
    for path in ("/dashboard/operator", f"/carriers/meta/callback?hub.verify_token=verify-{cell.mark}"):
        answer = cell.ask("GET", path, headers=cell.cookie, port=other.port)
        assert (answer.status, answer.code) == (421, "wrong_cell")
    assert cell.ask("POST", unsubscribe_path(cell), b"", FORM, port=other.port).status == 421
    # Even at its own host name, what another cell signed is unknown: each cell has a secret of its own.
    assert other.ask("POST", unsubscribe_path(cell), b"", FORM).status == 404
    assert other.ask("GET", "/dashboard/operator", headers=cell.cookie).status in (302, 303)


def test_request_with_an_unknown_key_is_answered_by_some_cell(front: int, cells: Cells) -> None:
    plain = make_token(bytes(64))
    third = make_token(bytes(64), "cell_03")
    headers = {"Host": API_HOST}
    answers = [
        ask("GET", "/v1/me", None, {**headers, "Authorization": f"Bearer {key}"}, front) for key in (plain, third, "x")
    ]
    assert [(answer.status, answer.code) for answer in answers] == [
        (401, "invalid_api_key"),
        (421, "wrong_cell"),
        (401, "invalid_api_key"),
    ]
    assert ask("GET", "/v1/me", None, headers, front).code == "missing_api_key"
    assert ask("GET", "/metrics", None, headers, front).status == 404


@pytest.mark.parametrize("cell", CELLS, indirect=True)
def test_mail_submitted_by_smtp_reaches_its_cell(cells: Cells, cell: Cell) -> None:
    message = email.message.EmailMessage()
    message["From"], message["To"], message["Subject"] = "hello@acme.test", "delivered@simulator.test", cell.mark
    message.set_content("Hi")
    smtps_port = free_port()
    with running_proxy("haproxy", cells, smtps_port, port=free_port()):
        with connect_tls(cells, cell, smtps_port) as client:
            client.login("heliograph", cell.key)
            client.send_message(message)
        with connect_tls(cells, cell, smtps_port) as client, pytest.raises(smtplib.SMTPAuthenticationError) as error:
            client.login("heliograph", cells.cells[cell.other].key)
    assert error.value.smtp_code == 535
    assert b"wrong_cell: This key belongs to " + cell.other.encode() in error.value.smtp_error
    with smtplib.SMTP("127.0.0.1", cell.submission_port, timeout=PATIENCE_S) as plain:
        plain.login("heliograph", cell.key)
        plain.send_message(message)
    listed = cell.ask("GET", "/v1/emails?limit=2", headers={"Authorization": f"Bearer {cell.key}"})
    assert [entry["subject"] for entry in listed.json["data"]] == [cell.mark] * 2


def connect_tls(cells: Cells, cell: Cell, port: int) -> smtplib.SMTP_SSL:
    """Connect as a client of the cell's host name would: its name is in the TLS handshake."""

    class Named(smtplib.SMTP_SSL):
        def _get_socket(self, host: str, port: int, timeout: float) -> Any:
            plain = smtplib.SMTP._get_socket(self, "127.0.0.1", port, timeout)  # type: ignore[attr-defined]
            return self.context.wrap_socket(plain, server_hostname=host)

    return Named(cell.host, port, timeout=PATIENCE_S, context=cells.authority.trusted())


def test_key_made_in_a_cell_names_it_on_every_page_and_in_every_command(front: int, cell: Cell) -> None:
    made = cell.commands.run("key", "create", "--team", "team_acme", "--scope", "manage").stdout.split()[-1]
    assert made.startswith(f"hk_{cell.name}_")
    bearer = {"Host": API_HOST, "Authorization": f"Bearer {made}"}
    created = ask("POST", "/v1/keys", {"name": f"of {made[-6:]}", "scopes": ["manage"]}, bearer, front)
    assert created.status == 201, created.raw
    id_, token = created.json["id"], created.json["token"]
    assert token.startswith(f"hk_{id_}_") and id_.startswith(f"{cell.name}_")
    listed = ask("GET", f"/v1/keys?limit=1&after={id_}", None, bearer, front)
    assert listed.status == 200, listed.raw
    rotated = ask("POST", f"/v1/keys/{id_}/rotate", {}, bearer, front)
    assert rotated.status in (200, 201) and rotated.json["token"].startswith(f"hk_{cell.name}_"), rotated.raw
    page = cell.ask("GET", f"/dashboard/teams/team_acme/keys/{id_}", headers=cell.cookie, port=front)
    assert page.status == 200 and f"hk_{id_}_" in page.raw.decode()
    assert ask("DELETE", f"/v1/keys/{id_}", None, bearer, front).status == 200
    assert ask("GET", "/v1/me", None, {**bearer, "Authorization": f"Bearer {token}"}, front).code == "invalid_api_key"
    assert cell.commands.run("key", "revoke", made).returncode == 0


def test_metrics_of_a_cell_do_not_count_the_others(cells: Cells) -> None:
    first, second = cells.cells.values()
    before = [accepted_count(cell) for cell in (first, second)]
    first.ask("POST", "/v1/emails", mail_of(first), {"Authorization": f"Bearer {first.key}"})
    assert [accepted_count(cell) for cell in (first, second)] == [before[0] + 1, before[1]]


def accepted_count(cell: Cell) -> float:
    text = cell.ask("GET", "/metrics").raw.decode()
    return sum(float(line.split()[-1]) for line in text.splitlines() if "messages_accepted_total{" in line)


def test_cell_can_be_served_by_another_machine_too(cells: Cells, tmp_path: Path) -> None:
    """A `serve` with one cell is one process, without a parent."""
    first, second = cells.cells.values()
    shutil.copytree(cells.folder / "data" / second.name, tmp_path / second.name)  # the secret
    with Service(cells.service.database, tmp_path, cells=second.name) as machine:
        machine.start()
        assert machine.get("/v1/me", key=second.key).status == 200
        assert machine.get("/v1/me", key=first.key).code == "wrong_cell"


def test_dead_process_of_a_cell_is_replaced_while_the_other_cell_answers(cells: Cells) -> None:
    first, second = cells.cells.values()
    pid = listening_pid(first.port)
    os.kill(pid, signal.SIGKILL)
    assert second.ask("GET", "/v1/me", headers={"Authorization": f"Bearer {second.key}"}).status == 200
    until(lambda: is_ready(first))
    assert listening_pid(first.port) != pid


def listening_pid(port: int) -> int:
    """Return the id of the process of a cell: the child that has HELIOGRAPH_CELL and not the parent."""
    name = CELLS[0].encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment, arguments = (folder / "environ").read_bytes(), (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if b"HELIOGRAPH_CELL=" + name in environment and f"127.0.0.1:{port}".encode() in arguments:
            return int(folder.name)
    return 0


# -- the files of deploy/ ----------------------------------------------------------------------------------


def test_haproxys_configuration_of_cells_is_valid_as_shipped() -> None:
    program = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin") or miss("haproxy", "is not installed")
    command = [program, "-c", "-f", str(DEPLOY / "cells.haproxy.cfg")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr


def test_caddys_configuration_of_cells_is_valid_as_shipped(tmp_path: Path) -> None:
    program = shutil.which("caddy") or miss("caddy", "is not installed")
    command = [program, "validate", "--config", str(DEPLOY / "cells.Caddyfile"), "--adapter", "caddyfile"]
    environment = os.environ | {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_patterns_of_basic_authentication_are_those_of_the_command(cells: Cells) -> None:
    config = (DEPLOY / "cells.Caddyfile").read_text("utf-8")
    for name in CELLS:
        assert f'"~^{basic_pattern(name)}" {name}\n' in config
        assert cells.service.run("cell", "pattern", name).stdout == basic_pattern(name) + "\n"
