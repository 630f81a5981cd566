"""Two cells of one PostgreSQL database, served by one `heliograph serve`, with a proxy of deploy/ before them."""

import http.client
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from heliograph.dashboard.page_request import SESSION_COOKIE
from heliograph.domain.setup.cells import cell_public_url, cell_url
from heliograph.domain.setup.keys import make_token
from tests.carriers.smtp_peer import Authority
from tests.npm import miss
from tests.people import let_in
from tests.service import NAMES, PATIENCE_S, Answer, Service, until

DEPLOY = Path(__file__).parents[1] / "deploy"
CELLS = ("cell_01", "cell_02")
MARKS = {"cell_01": "almond", "cell_02": "walnut"}  # a word in all data of a cell
API_HOST = "api.mail.test"
OPERATOR = "operator@example.com"

# Both cells have the same ids of teams, templates and carriers.
EXTRA_SETUP = """
[[carriers]]
id = "meta"
channel = "whatsapp"
kind = "cloud_api"
phone_number_id = "1"
access_token = "a"
app_secret = "s"
verify_token = "verify-{mark}"

[[teams]]
id = "team_acme"
name = "Acme {mark}"

  [[teams.keys]]
  name = "agent"
  token = {{ env = "AGENT" }}
  restrictions = {{ per_day = 1000000 }}
"""


def host_of(cell: str) -> str:
    return cell_public_url("{cell}.mail.test", cell)


def tokens_of(cell: str) -> dict[str, str]:
    """Return the same tokens as outside cells, but for the name of the cell."""
    return {name: make_token(bytes([number]) * 64, cell) for number, name in enumerate(NAMES, 1)}


def free_ports(count: int) -> int:
    """Return the first of `count` consecutive free ports."""
    for port in range(21_000 + os.getpid() % 500 * 20, 60_000, count):
        with suppress(OSError):
            for number in range(port, port + count):
                with socket.create_server(("127.0.0.1", number)):
                    pass
            return port
    raise AssertionError("no free ports")


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    host: str  # host name of its public URL
    port: int  # of its process
    submission_port: int
    submission_tls_port: int
    database: str
    key: str  # a key of team_acme with the scopes send and manage
    tokens: dict[str, str]
    mark: str
    commands: Service  # runs commands on the cell
    session: str  # cookie of an operator

    @property
    def other(self) -> str:
        return next(name for name in CELLS if name != self.name)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        host: str | None = None,
        port: int | None = None,
    ) -> Answer:
        """Send a request to the process of the cell, or to another port, without a key."""
        return ask(method, path, body, {"Host": host or self.host, **(headers or {})}, port or self.port)

    @property
    def cookie(self) -> dict[str, str]:
        return {"Cookie": f"{SESSION_COOKIE}={self.session}"}


def ask(method: str, path: str, body: Any, headers: Mapping[str, str], port: int) -> Answer:
    sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    given = {"Content-Type": "application/json"} if body is not None else {}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request(method, path, sent, given | dict(headers))
        response = connection.getresponse()
        answered = {name.lower(): response.getheader(name, "") for name, _ in response.getheaders()}
        return Answer(response.status, answered, response.read())
    finally:
        connection.close()


class Cells(msgspec.Struct, frozen=True, kw_only=True):
    """The running cells."""

    service: Service
    cells: dict[str, Cell]
    authority: Authority
    folder: Path
    front_port: int  # for a proxy, in the public URLs


@contextmanager
def running_cells(database: str, folder: Path) -> Iterator[Cells]:
    """Run two new cells of an empty database. The one process that starts them is the last of `service.processes`."""
    first, authority = free_ports(7), Authority()
    front, http_port, submission, submission_tls = first, first + 1, first + 3, first + 5
    pem = folder / "server.pem"
    pem.write_bytes(authority.pem(*map(host_of, CELLS))[0])
    settings: dict[str, Any] = {
        "cells": ",".join(CELLS),
        "public_url": f"http://{{cell}}.mail.test:{front}",
        "submission_listen": f"127.0.0.1:{submission}",
        "submission_tls_listen": f"127.0.0.1:{submission_tls}",
        "submission_cert": str(pem),
        "submission_key": str(pem),
        "mcp": "on",
    }
    with Service(database, folder / "data", **settings) as service:
        cells = {}
        for number, name in enumerate(CELLS):
            added = service.run("cell", "add", name)
            assert added.returncode == 0, added.stderr
            tokens, commands = tokens_of(name), Service(database, folder / "data", cell=name, **settings)
            commands._environment |= tokens
            commands.apply()
            file = folder / f"{name}.toml"
            file.write_text(EXTRA_SETUP.format(mark=MARKS[name]))
            commands.apply(file)
            url = cell_url(database, name)
            assert commands.run("user", "add", OPERATOR, "--operator").returncode == 0
            cells[name] = Cell(
                name=name,
                host=host_of(name),
                port=http_port + number,
                submission_port=submission + number,
                submission_tls_port=submission_tls + number,
                database=url,
                key=tokens["ACME"],
                tokens=tokens,
                mark=MARKS[name],
                commands=commands,
                session=let_in(url, OPERATOR),
            )
        service.start("all", http_port)
        for cell in cells.values():
            until(partial(is_ready, cell))
        yield Cells(service=service, cells=cells, authority=authority, folder=folder, front_port=front)
        assert service.stop() == 0


def is_ready(cell: Cell) -> bool:
    try:
        return cell.ask("GET", "/readyz").status == 200
    except ConnectionError:
        return False


def proxy_command(name: str, cells: Cells, port: int, smtps_port: int) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of a proxy before the cells, with the configuration of deploy/."""
    program = shutil.which(name) or shutil.which(name, path="/usr/sbin") or miss(name, f"{name} is not installed")
    addresses = {number: f"127.0.0.1:{cell.port}" for number, cell in enumerate(cells.cells.values(), 1)}
    if name == "haproxy":
        variables = {"PROXY_LISTEN": f"127.0.0.1:{port}", "PROXY_SMTPS_LISTEN": f"127.0.0.1:{smtps_port}"}
        variables |= {f"PROXY_CELL_{number:02}": address for number, address in addresses.items()}
        for number, cell in enumerate(cells.cells.values(), 1):
            variables[f"PROXY_CELL_{number:02}_SMTPS"] = f"127.0.0.1:{cell.submission_tls_port}"
        return [program, "-q", "-db", "-f", str(DEPLOY / "cells.haproxy.cfg")], variables
    config = cells.folder / "Caddyfile"
    config.write_text("{\n\tadmin off\n}\n" + (DEPLOY / "cells.Caddyfile").read_text("utf-8"))
    variables = {f"CELL_{number:02}": address for number, address in addresses.items()}
    variables |= {"DOMAINS": f"http://:{port}", "HOME": str(cells.folder)}
    arguments = [program, "run", "--config", str(config), "--adapter", "caddyfile"]
    return arguments, variables | {"XDG_DATA_HOME": str(cells.folder)}


@contextmanager
def running_proxy(name: str, cells: Cells, smtps_port: int, port: int | None = None) -> Iterator[int]:
    """Run a proxy before the cells, by default on the port of their public URLs; yield its port."""
    port = port or cells.front_port
    arguments, variables = proxy_command(name, cells, port, smtps_port)
    with open(cells.folder / f"{name}.log", "wb") as log:
        process = subprocess.Popen(arguments, env=os.environ | variables, stdout=log, stderr=log)
    try:
        for cell in cells.cells.values():
            until(partial(is_passed_to, cell, port))
        yield port
    finally:
        process.terminate()
        process.wait()


def is_passed_to(cell: Cell, port: int) -> bool:
    try:
        return cell.ask("GET", "/v1/me", headers={"Authorization": f"Bearer {cell.key}"}, port=port).status == 200
    except ConnectionError:
        return False
