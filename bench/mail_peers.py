"""The other mail servers: Postfix with opendkim, and Haraka with its DKIM plugin, set up as in their guides.

Both get the best conditions: smtp-source on 20 persistent connections.
"""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

from mail_install import HARAKA, Missing, run
from mail_servers import DOMAIN, SESSIONS, MailServer
from servers import SEND_S

from heliograph.domain.mail.dkim import generate_key, public_record

SELECTOR = "bench"
BODY = 5 * 1024  # octets
PACKAGE = HARAKA / "node_modules/Haraka"


class Peer(MailServer):
    """A mail server that accepts SMTP and signs with one RSA key."""

    def __init__(self, folder: Path, sink: int) -> None:
        super().__init__(folder)
        self.sink, self.key = sink, generate_key("rsa-sha256")

    def send(self, mails: int) -> float:
        options = ["-d", "-s", str(SESSIONS), "-l", str(BODY), "-m", str(mails)]
        addresses = ["-f", f"hello@{DOMAIN}", "-t", "customer@example.com", f"127.0.0.1:{self.port}"]
        started = time.monotonic()
        subprocess.run(["smtp-source", *options, *addresses], check=True, timeout=SEND_S)
        return started

    def records(self) -> dict[str, str]:
        return {f"{SELECTOR}._domainkey.{DOMAIN}": public_record(self.key)}


POSTFIX = """\
compatibility_level = 3.6
queue_directory = {folder}/queue
data_directory = {folder}/data
maillog_file = {folder}/mail.log
maillog_file_prefixes = {folder}
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = mail.{domain}
mydestination =
mynetworks = 127.0.0.0/8
relayhost = [127.0.0.1]:{sink}
alias_maps =
alias_database =
smtpd_milters = unix:{folder}/opendkim.sock
milter_default_action = tempfail
"""

# Services of a relay as shipped: service, type, private, unprivileged, chroot, wakeup, maximum, program.
POSTFIX_PROGRAMS = """\
127.0.0.1:{port} inet n - n - - smtpd
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
smtp unix - - n - - smtp
relay unix - - n - - smtp
showq unix n - n - - showq
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
"""

OPENDKIM = """\
Mode s
Domain {domain}
Selector {selector}
KeyFile {folder}/private
RequireSafeKeys no
Canonicalization relaxed/relaxed
OversignHeaders From
InternalHosts 127.0.0.1
Socket local:{folder}/opendkim.sock
UMask 000
Syslog no
"""


class Postfix(Peer):
    """Postfix as shipped, with its own queue; opendkim on a unix socket."""

    name = "Postfix"

    def __init__(self, folder: Path, sink: int) -> None:
        if os.geteuid():
            raise Missing("only root can start it")
        super().__init__(folder, sink)
        numbers = run(["postconf", "-d", "mail_version"]).split()[-1], run(["opendkim", "-V"]).split()[3].strip("v")
        self.name = "Postfix {} + opendkim {}".format(*numbers)
        args = {"folder": self.folder, "domain": DOMAIN, "selector": SELECTOR, "sink": sink, "port": self.port}
        files = {
            "etc/main.cf": POSTFIX.format(**args),
            "etc/master.cf": POSTFIX_PROGRAMS.format(**args),
            "opendkim.conf": OPENDKIM.format(**args),
            "private": self.key.decode(),
        }
        for inner in ("etc", "queue", "data"):
            (self.folder / inner).mkdir()
        for name, text in files.items():
            (self.folder / name).write_text(text)
        shutil.chown(self.folder / "data", "postfix")

    def start(self) -> None:
        place = self.folder / "opendkim.sock"
        place.unlink(missing_ok=True)
        self._run("opendkim", "-f", "-x", str(self.folder / "opendkim.conf"), address=str(place))
        self._run("postfix", "-c", str(self.folder / "etc"), "start-fg", address=("127.0.0.1", self.port))


HARAKA_PLUGIN = """\
exports.hook_mail = (next, connection) => { connection.relaying = true; next(); };
exports.hook_rcpt = (next) => next(OK);
exports.hook_get_mx = (next) => next(OK, { exchange: '127.0.0.1', port: %d, priority: 0 });
"""


class Haraka(Peer):
    """Haraka's outbound queue with its own DKIM plugin, with one process per core."""

    name = "Haraka"

    def __init__(self, folder: Path, sink: int) -> None:
        super().__init__(folder, sink)
        self.name = f"Haraka {json.loads((PACKAGE / 'package.json').read_text())['version']}"
        shutil.copytree(PACKAGE / "config", self.folder / "config")
        signing = "[sign]\nenabled=true\nheaders=From, To, Subject, Date, Message-ID\n[canon]\nbody=relaxed\n"
        files = {
            "config/smtp.ini": f"listen=127.0.0.1:{self.port}\nnodes=cpus\n",
            "config/outbound.ini": "concurrency_max=100\nenable_tls=false\n",
            "config/plugins": "route\ndkim\n",
            "config/dkim.ini": f"{signing}[verify]\nenabled=false\n",
            f"config/dkim/{DOMAIN}/private": self.key.decode(),
            f"config/dkim/{DOMAIN}/selector": SELECTOR,
            "plugins/route.js": HARAKA_PLUGIN % sink,
        }
        for name, text in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)
        (self.folder / "queue").mkdir()
        (self.folder / "node_modules").symlink_to(HARAKA / "node_modules")

    def start(self) -> None:
        command = ["node", str(PACKAGE / "bin/haraka"), "-c", str(self.folder)]
        self._run(*command, address=("127.0.0.1", self.port))
