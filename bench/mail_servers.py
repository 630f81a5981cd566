"""Our own mail server under test: complete, and with one signature only."""

import json
import subprocess
import sys
from abc import abstractmethod
from pathlib import Path

from ours import SETUP, TOKEN, Ours, Revision
from rounds import ROOT
from send import TO
from servers import Server, request_of

TEAM, DOMAIN = "team_bench", "bench.test"  # names in setup.toml
SESSIONS = 20  # sessions to the sink: Postfix's default; smtp-source uses as many
LINE = "Your order 4711 left our warehouse this morning and arrives on Thursday, 9 to 12."
LINES = 27  # lines of text, and of HTML: an unsigned mail has 5 KiB with its header
MAIL = {
    "to": f"customer-{TO.decode()}@example.com",
    "from": f"hello@{DOMAIN}",
    "subject": "Your order 4711 is on its way",
    "html": "<html><body>" + "<br>\n".join([LINE] * LINES) + "</body></html>",
    "text": "\n".join([LINE] * LINES),
}
# Run by the revision's own interpreter, with its version of the store.
DROP_ED25519 = """
import asyncio, sys
from pathlib import Path
from heliograph.bootstrap import open_store
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.setup.snapshot import to_row
from heliograph.settings import Settings
from heliograph.storage.setup import SetupChange

async def drop(database, data, team):
    async with open_store(Settings(database=database, data=Path(data))) as store:
        keys = [key for key in store.setup.current.teams[team].dkim_keys if key.algorithm != "rsa-sha256"]
        rows = [to_row("dkim_key", key.id, None, key.team) for key in keys]
        audit = COMMAND_LINE.did(0, "bench.set_up", "a bench")
        await store.setup.change(lambda *_: SetupChange(rows=rows, audit=audit))

asyncio.run(drop(*sys.argv[1:]))
"""


class MailServer(Server):
    """A mail server that is up only while it is measured."""

    sink: int

    @abstractmethod
    def send(self, mails: int) -> float:
        """Submit this many mails; return the start time on the machine's monotonic clock."""

    @abstractmethod
    def records(self) -> dict[str, str]:
        """Return the server's DKIM records: name → value."""


def relay_setup(folder: Path, sink: int) -> Path:
    """Return the benchmark's setup, with a relay on this port instead of the simulator."""
    relay = f'kind = "smtp"\nhost = "127.0.0.1"\nport = {sink}\ntls = "none"\nconnections = {SESSIONS}'
    path = folder / "setup.toml"
    path.write_text(SETUP.read_text().replace('kind = "simulator"', relay))
    return path


class OurMail(MailServer):
    """The whole service on SQLite; every 202 follows a synced commit."""

    def __init__(
        self, revision: Revision, name: str, folder: Path, sink: int, *options: str, rsa: bool = False
    ) -> None:
        super().__init__(folder, revision.called(name))
        self.revision, self.sink, self._options, self._sent = revision, sink, options, 0
        self._setup = relay_setup(self.folder, sink)
        self._database, self._data = f"sqlite:///{self.folder}/ours.db", self.folder / "files"
        self._where = ["--database", self._database, "--data", str(self._data)]
        revision.ask("apply", str(self._setup), "--json", *self._where)
        self.records()  # creates the DKIM keys
        if rsa:
            drop = [revision.python, "-c", DROP_ED25519, self._database, str(self._data), TEAM]
            subprocess.run(drop, env=revision.environment(), check=True)

    def start(self) -> None:
        ours = Ours(self.revision, self.name, self._data, self._database, *self._options, setup=self._setup)
        self._groups.append(ours)
        self.port = ours.port

    def start_timed(self, path: Path) -> int:
        """Start the service with timing of its stages, written to this file; return its process id."""
        address = ("127.0.0.1", self.port)
        command = [sys.executable, str(ROOT / "bench/mail_stages.py"), str(path), "serve"]
        self._run(*command, "--listen", f"127.0.0.1:{self.port}", *self._where, address=address)
        return self._groups[-1].pid

    def send(self, mails: int) -> float:
        started, _ = self.post(request_of("/v1/emails", TOKEN, MAIL), self._sent, mails)
        self._sent += mails
        return started

    def records(self) -> dict[str, str]:
        shown = json.loads(self.revision.ask("domain", "dns", DOMAIN, "--json", *self._where))["records"]
        return {record["name"]: record["value"] for record in shown if record["purpose"] == "dkim"}
