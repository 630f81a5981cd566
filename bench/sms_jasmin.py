"""Jasmin under test, with its own RabbitMQ and Redis."""

import re
import socket

from rounds import free_port
from sms_install import JASMIN, RABBITMQ
from sms_servers import NOWHERE, Peer

# Jasmin has more listeners than needed here; each gets its own port.
CONFIG = """\
[DEFAULT]
bind = 127.0.0.1
log_level = WARNING

[amqp-broker]
port = {rabbit}
spec = {spec}

[redis-client]
port = {redis}

[http-api]
port = {http}

[jcli]
port = {jcli}
authentication = no

[router]
port = {router}

[client-management]
port = {clients}

[smpp-server]
port = {server}

[smpp-server-pb]
port = {server_pb}

[service-smppclient]
[sm-listener]
[dlr]
"""

CONNECTORS = 10  # each submits one message at a time, whatever its configuration

USER = """\
group -a
gid bench
ok
user -a
username bench
password bench
gid bench
uid bench
ok
"""

CONNECTOR = """\
smppccm -a
cid {name}
host 127.0.0.1
port {smsc}
username bench
password bench
submit_throughput 0
ok
smppccm -1 {name}
"""

ROUTE = """\
filter -a
type TransparentFilter
fid all
ok
mtrouter -a
type RandomRoundrobinMTRoute
order 10
filters all
connectors {connectors}
rate 0.0
ok
"""

_PROMPT = re.compile(rb"(Session ref: [0-9]+\s+|jcli : |> )$")


class Jasmin(Peer):
    """jasmind and dlrlookupd, which log warnings; connectors without a limit, used in turn."""

    name, messages = "Jasmin", 1000
    durable = "no: its queues are not durable, and it answers without waiting for RabbitMQ"
    path, text, receipts = "/send", "content", f"&dlr=yes&dlr-level=2&dlr-method=GET&dlr-url={NOWHERE}"

    def start(self) -> None:
        args = {"rabbit": free_port(), "redis": free_port(), "jcli": free_port(), "http": self.port}
        args |= {name: free_port() for name in ("router", "clients", "server", "server_pb")}
        self._start_redis(args["redis"])
        self._start_rabbit(args["rabbit"])
        spec = next(JASMIN.glob("lib/*/site-packages/txamqp/specs/standard/amqp0-9-1.stripped.xml"))
        file = self.folder / "jasmin.cfg"
        file.write_text(CONFIG.format(spec=spec, **args))
        self._start_jasmin("jasmind.py", "-c", str(file), port=args["jcli"])
        self._start_jasmin("dlrlookupd.py", "-c", str(file), "-i", f"bench-{self.port}")
        self._configure(args["jcli"])

    def _start_redis(self, port: int) -> None:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", ""]
        self._run("/usr/bin/redis-server", *options, address=("127.0.0.1", port))

    def _start_rabbit(self, port: int) -> None:
        """Start RabbitMQ's port mapper first: one that RabbitMQ starts would outlive it."""
        epmd = free_port()
        self._run("epmd", "-port", str(epmd), "-address", "127.0.0.1", address=("127.0.0.1", epmd))
        environment = {
            "HOME": str(self.folder),
            "ERL_EPMD_PORT": str(epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_LOGS": "-",
        }
        names = ("MNESIA_BASE", "LOG_BASE", "CONFIG_FILE", "CONF_ENV_FILE", "ENABLED_PLUGINS_FILE", "PID_FILE")
        environment |= {f"RABBITMQ_{name}": str(self.folder / f"rabbitmq-{name.lower()}") for name in names}
        self._run(RABBITMQ, address=("127.0.0.1", port), **environment)

    def _start_jasmin(self, program: str, *options: str, port: int | None = None) -> None:
        store = self.folder / "store"
        store.mkdir(exist_ok=True)
        command = [str(JASMIN / "bin/python"), str(JASMIN / "bin" / program), *options]
        address = ("127.0.0.1", port) if port else None
        self._run(*command, address=address, LOG_PATH=str(self.folder / "log"), STORE_PATH=str(store))

    def _configure(self, port: int) -> None:
        """Configure Jasmin through its console."""
        names = [f"smsc-{number}" for number in range(CONNECTORS)]
        session = USER + "".join(CONNECTOR.format(name=name, smsc=self.smsc) for name in names)
        session += ROUTE.format(connectors=";".join(f"smppc({name})" for name in names))
        with socket.create_connection(("127.0.0.1", port), 10) as console:
            _read(console)
            for line in session.splitlines():
                console.sendall(line.encode() + b"\r\n")
                answer = _read(console)
                if line == "ok" and b"Successfully" not in answer:
                    raise SystemExit(f"Jasmin's console says: {answer.decode(errors='replace')}")


def _read(console: socket.socket) -> bytes:
    """Return the console's output up to the next prompt."""
    came = b""
    while not _PROMPT.search(came):
        more = console.recv(65536)
        if not more:
            raise SystemExit(f"Jasmin's console hung up: {came.decode(errors='replace')}")
        came += more
    return came
