"""The servers under measure, each with files and ports of its own: ours and Kannel; Jasmin has a page to itself.

All submit to the same SMSC over loopback, as fast as it answers, and are spoken to by their own HTTP interfaces.
"""

import json
import os
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from urllib.parse import urlencode

from accept import CLI, HERE, free_port
from mail_processes import Group
from sms_load import TO

CONNECTIONS = 128  # of the HTTP load
WINDOW = 100  # submits without an answer, of ours and of Kannel
SEND_S = 120.0
SENDER, TEXT = "Bench", "Your order 4711 left our warehouse this morning and arrives on Thursday between 9 and 12."
NOWHERE = "http://127.0.0.1:9/"  # where receipts would go; the SMSC sends none


class Server(ABC):
    """Up from `start` to `stop`; all that it writes is in its folder."""

    name: str
    durable: str  # what an accepted message survives
    messages: int  # of each measure: some seconds' work

    def __init__(self, folder: Path, smsc: int) -> None:
        self.folder, self.smsc, self.port = folder / self.name, smsc, free_port()
        self.folder.mkdir()
        self._groups: list[Group] = []

    @abstractmethod
    def start(self) -> None:
        """Returns when it takes requests."""

    @abstractmethod
    def requests(self) -> dict[str, str]:
        """By the name to measure it as: an HTTP request that sends one SMS to the number that the load changes."""

    def send(self, request: str, first: int, messages: int) -> tuple[float, float]:
        """When the first request was sent and the last one answered, on the machine's monotonic clock."""
        options = [f"--port={self.port}", f"--first={first}", f"--messages={messages}", f"--connections={CONNECTIONS}"]
        load = [sys.executable, str(HERE / "sms_load.py"), *options]
        done = subprocess.run(load, input=request.encode(), check=True, stdout=subprocess.PIPE, timeout=SEND_S)
        started, answered = json.loads(done.stdout)
        return started, answered

    def cpu_s(self) -> float:
        return sum(group.cpu_s() for group in self._groups)

    def stop(self) -> None:
        while self._groups:
            self._groups.pop().stop()

    def _run(self, *command: str, port: int | None = None, **environment: str) -> None:
        """Returns when that port takes connections."""
        log = self.folder / f"{len(self._groups)}.log"
        group = Group(self.name, [*command], log, {**os.environ, **environment})
        self._groups.append(group)
        if port:
            group.wait_for(socket.AF_INET, ("127.0.0.1", port))


SETUP = """\
[[carriers]]
id = "smsc"
channel = "sms"
kind = "smpp"
host = "127.0.0.1"
port = {smsc}
system_id = "bench"
password = "bench"
window = {window}
source_addr = "{sender}"

[[teams]]
id = "team_bench"
name = "Bench"
mode = "live"
credit = "1000000.00"
rate_limit = 0

  [[teams.domains]]
  name = "bench.test"
  brand = "Bench"
  verified = true
  approved = true

  [[teams.templates]]
  id = "tpl_bench"
  channel = "sms"
  name = "Bench"
  body = "{text}"
  variables = ["order"]
  price = "0.0100"

  [[teams.keys]]
  name = "bench"
  token = {{ env = "BENCH_TOKEN" }}
"""


class Ours(Server):
    """The whole service in one process on SQLite; it asks for receipts and moves money for every message."""

    name, durable, messages = "Heliograph", "yes: every 202 follows a synced commit", 5000

    def __init__(self, folder: Path, smsc: int, token: str) -> None:
        super().__init__(folder, smsc)
        self.token = token
        self._where = ["--database", f"sqlite:///{self.folder}/ours.db", "--data", str(self.folder / "files")]
        text = TEXT.replace("4711", "{{customer.order}}")
        setup = self.folder / "setup.toml"
        setup.write_text(SETUP.format(sender=SENDER, smsc=smsc, window=WINDOW, text=text))
        apply = [*CLI, "apply", str(setup), "--json", *self._where]
        subprocess.run(apply, env={**os.environ, "BENCH_TOKEN": token}, check=True, stdout=subprocess.DEVNULL)

    def start(self) -> None:
        self._run(*CLI, "serve", "--listen", f"127.0.0.1:{self.port}", *self._where, port=self.port)

    def requests(self) -> dict[str, str]:
        body = json.dumps({"to": f"+{TO.decode()}", "template_id": "tpl_bench", "variables": {"order": "4711"}})
        head = (
            f"POST /v1/sms HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {self.token}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return {self.name: head + body}


class Peer(Server):
    """A gateway that takes a message in the query of a GET, and asks for receipts when it is told where they go."""

    path: str
    text: str  # the field's name
    receipts: str  # what asks for them, at the end of the query

    def requests(self) -> dict[str, str]:
        fields = {"username": "bench", "password": "bench", "to": TO.decode(), "from": SENDER, self.text: TEXT}
        line, end = f"GET {self.path}?{urlencode(fields)}", " HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
        return {self.name: line + end, f"{self.name}, receipts wanted": line + self.receipts + end}


KANNEL = """\
group = core
admin-port = {admin}
admin-interface = 127.0.0.1
admin-password = bench
smsbox-port = {boxes}
smsbox-interface = 127.0.0.1
box-allow-ip = 127.0.0.1

group = smsc
smsc = smpp
host = 127.0.0.1
port = {smsc}
transceiver-mode = true
smsc-username = bench
smsc-password = bench
system-type = ""
max-pending-submits = {window}

group = smsbox
bearerbox-host = 127.0.0.1
sendsms-port = {port}
sendsms-interface = 127.0.0.1

group = sendsms-user
username = bench
password = bench
"""


class Kannel(Peer):
    """bearerbox and smsbox without a store; they write errors to their logs and nothing else."""

    name, durable, messages = "Kannel", "no: messages are in memory only", 10000
    path, text, receipts = "/cgi-bin/sendsms", "text", f"&dlr-mask=31&dlr-url={NOWHERE}"

    def start(self) -> None:
        given = {"smsc": self.smsc, "port": self.port, "window": WINDOW, "boxes": free_port(), "admin": free_port()}
        file = self.folder / "kannel.conf"
        file.write_text(KANNEL.format(**given))
        self._run("/usr/sbin/bearerbox", "-v", "3", str(file), port=given["boxes"])
        self._run("/usr/sbin/smsbox", "-v", "3", str(file), port=self.port)
