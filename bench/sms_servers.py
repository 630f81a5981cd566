"""The SMS servers under test, each with its own files and ports: ours and Kannel; Jasmin has its own module.

All submit to the same SMSC over loopback as fast as it responds, and are used through their own HTTP interfaces.
"""

from abc import abstractmethod
from pathlib import Path
from urllib.parse import urlencode

from ours import TOKEN, Ours, Revision
from rounds import free_port
from send import TO
from servers import Server, request_of

WINDOW = 100  # window of unanswered submits, ours and Kannel's
SENDER, TEXT = "Bench", "Your order 4711 left our warehouse this morning and arrives on Thursday between 9 and 12."
NOWHERE = "http://127.0.0.1:9/"  # URL for receipts; the SMSC sends none


class SmsServer(Server):
    durable: str  # failures that an accepted message survives
    messages: int  # messages per measurement, some seconds of work

    def __init__(self, folder: Path, smsc: int, name: str = "") -> None:
        super().__init__(folder, name)
        self.smsc = smsc

    @abstractmethod
    def requests(self) -> dict[str, str]:
        """Return name of the measurement → an HTTP request that sends one SMS to the number that the load changes."""


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


class OurSms(SmsServer):
    """The whole service in one process on SQLite; it requests receipts and books the price of every message."""

    name, durable, messages = "Heliograph", "yes: every 202 follows a synced commit", 5000

    def __init__(self, revision: Revision, folder: Path, smsc: int) -> None:
        super().__init__(folder, smsc, revision.called(self.name))
        self._revision, self._setup = revision, self.folder / "setup.toml"
        text = TEXT.replace("4711", "{{customer.order}}")
        self._setup.write_text(SETUP.format(sender=SENDER, smsc=smsc, window=WINDOW, text=text))

    def start(self) -> None:
        database = f"sqlite:///{self.folder}/ours.db"
        ours = Ours(self._revision, self.name, self.folder / "files", database, setup=self._setup)
        self._groups.append(ours)
        self.port = ours.port

    def requests(self) -> dict[str, str]:
        sms = {"to": f"+{TO.decode()}", "template_id": "tpl_bench", "variables": {"order": "4711"}}
        return {self.name: request_of("/v1/sms", TOKEN, sms)}


class Peer(SmsServer):
    """A gateway that takes a message in the query of a GET, and requests receipts if it has a URL for them."""

    path: str
    text: str  # name of the text field
    receipts: str  # end of the query that requests receipts

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
    """bearerbox and smsbox without a store; they log only errors."""

    name, durable, messages = "Kannel", "no: messages are in memory only", 10000
    path, text, receipts = "/cgi-bin/sendsms", "text", f"&dlr-mask=31&dlr-url={NOWHERE}"

    def start(self) -> None:
        options = {"smsc": self.smsc, "port": self.port, "window": WINDOW, "boxes": free_port(), "admin": free_port()}
        file = self.folder / "kannel.conf"
        file.write_text(KANNEL.format(**options))
        self._run("/usr/sbin/bearerbox", "-v", "3", str(file), address=("127.0.0.1", options["boxes"]))
        self._run("/usr/sbin/smsbox", "-v", "3", str(file), address=("127.0.0.1", self.port))
