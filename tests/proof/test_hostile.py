"""P21: one request never stops the others. The whole hostile collection at a running service, one kind after the other,
while another process asks for `/healthz`, again and again, and says how long it had to wait at most.

The collection speaks HTTP and SMTP only, so that an older version can be attacked with it too.
"""

import json
import smtplib
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import NamedTuple

from tests.proof.size import database_name, report
from tests.service import SETUP, TOKENS, Service, free_port, until

LATE_S = 0.25  # what the promise allows
PATIENCE_S = 150.0
KIB, MIB = 1 << 10, 1 << 20
LARGE = 39 * MIB
MAIL = MIB
SOCKETS = 300

# Prints, since it was last asked, the longest answer in seconds, and the most seconds that the service computed during
# one: what it would have been on a machine that does nothing else.
PROBE = """
import http.client, sys, threading, time
port, pid = map(int, sys.argv[1:])
clock = (~pid << 3) | 2  # CPU time of that process
longest, computed, count = 0.0, 0.0, 0
def ask():
    global longest, computed, count
    while True:
        began, cpu = time.monotonic(), time.clock_gettime(clock)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()
        waited, cpu = time.monotonic() - began, time.clock_gettime(clock) - cpu
        longest, computed, count = max(longest, waited), max(computed, min(waited, cpu)), count + 1
        time.sleep(0.005)
threading.Thread(target=ask, daemon=True).start()
for _ in sys.stdin:
    before = count
    while count < before + 2:  # what is under way now counts too
        time.sleep(0.005)
    print(longest, computed, flush=True)
    longest = computed = 0.0
"""

# A template whose values multiply, and a carrier that builds every mail for the wire.
MORE = """
[[carriers]]
id = "sink"
channel = "email"
kind = "smtp"
host = "127.0.0.1"
port = {port}
tls = "none"

[[teams]]
id = "team_acme"
  [[teams.templates]]
  id = "tpl_multiply"
  channel = "email"
  name = "Multiply"
  subject = "x"
  text = "{text}"
  html = "{text}"
  variables = ["name"]
"""

Attack = Callable[["Target"], None]


class Target:
    def __init__(self, port: int, bounces: int) -> None:
        self.port, self.bounces = port, bounces

    def ask(self, path: str, body: bytes, *, key: str | None = "ACME", **headers: str) -> int:
        """The status; 0 when there was no answer."""
        given = {"Content-Type": "application/json", **{name.replace("_", "-"): text for name, text in headers.items()}}
        if key:
            given["Authorization"] = f"Bearer {TOKENS[key]}"
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request("POST", path, body, given)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        except (OSError, HTTPException):
            return 0
        finally:
            connection.close()

    def json(self, body: bytes) -> None:
        self.ask("/v1/emails", body)

    def mail(self, **fields: str) -> None:
        body = {"to": "a@example.com", "from": "hello@acme.test", "subject": "x", **fields}
        self.ask("/v1/emails", json.dumps(body).encode())

    def form(self, kind: str, body: bytes) -> None:
        self.ask("/dashboard/sign-in", body, key=None, Content_Type=kind)

    def bounce(self, text: bytes, recipients: int = 1) -> None:
        with (
            suppress(OSError, smtplib.SMTPException),
            smtplib.SMTP("127.0.0.1", self.bounces, timeout=PATIENCE_S) as peer,
        ):
            peer.ehlo()
            peer.mail("")
            for number in range(recipients):
                if peer.rcpt(f"abuse@h{number}.acme.test")[0] == 421:
                    return
            peer.data(text)

    def hold(self, first: bytes) -> socket.socket:
        """A connection that says this much and no more."""
        held = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        with suppress(OSError):
            held.sendall(first)
        return held


def head(key: str, length: int) -> bytes:
    return (
        f"POST /v1/emails HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKENS[key]}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def many(head: bytes, again: bytes, tail: bytes, size: int) -> bytes:
    return head + again * (size // len(again)) + tail


# -- the collection ----------------------------------------------------------------------------------------


def forms(target: Target) -> None:
    multipart = "multipart/form-data; boundary=x"
    for again in (b"--x\r\n", b"--x\r\na: b\r\n\r\n\r\n", b"a\r\n ", b"\r\n", b"a: b\r\n"):
        for size in (63 * KIB, LARGE // 4):
            target.form(multipart, many(b"--x\r\n", again, b"", size))
    for again in (b"; a=b", b"; a*0=b", b"(", b'; a="', b";"):
        target.form(multipart, many(b"--x\r\nContent-Disposition: form-data", again, b"\r\n\r\nx\r\n--x--", 63 * KIB))
    target.form("application/x-www-form-urlencoded", many(b"", b"a=b&", b"", 63 * KIB))
    target.form("application/x-www-form-urlencoded", many(b"a=", b"%41", b"", 63 * KIB))


def repeated_keys(target: Target) -> None:
    names = ",".join(f'"{number}":1' for number in range(12_000))
    target.json(f'{{{names},"x":1,"x":1}}'.encode())


def large_json(target: Target) -> None:
    for again in (b"1,", b'"",', b"[],", b'{"a":1},'):
        target.json(many(b'{"to":[', again, b"1]}", LARGE))
    for again in (b" ", b"[", b"1", b'{"a":', b'"'):
        target.json(many(b"", again, b"", LARGE))
    for again in (b"\\u0061", b"\\n", b'\\" :', "é".encode()):
        for tail in (b'"}', b'","a":1,"a":2}'):
            target.json(many(b'{"text":"', again, tail, LARGE))
        target.ask("/v1/emails", many(b'{"text":"', again, b'"}', LARGE), Idempotency_Key="x")
        target.ask("/compat/resend/emails", many(b'{"text":"', again, b'"}', LARGE))


def many_values(target: Target) -> None:
    for again in (b"[]", b"[" * 30 + b"]" * 30, b'{"a":{}}', b"0"):
        target.json(many(b'{"to":[', again + b",", b"0]}", min(LARGE, 4 * MIB) - 16))
    count = 190_000
    names = [f"{'k' * 185}{number * 7919 % count:08}😀" for number in range(count)]
    body = json.dumps(dict.fromkeys(names, 0), ensure_ascii=False).encode()
    target.ask("/v1/emails", body, Idempotency_Key="y")
    for head, tail in ((b'{"content":[1', b"]}"), (b'{"content"', b":[1]}")):
        target.ask("/compat/resend/emails", many(head, b" ", tail, LARGE))
    for again in (b",1", b',"content":['):
        target.ask("/compat/resend/emails", many(b'{"content":[1', again, b"]}", LARGE))


def chunked_bodies(target: Target) -> None:
    body = json.dumps({"to": "nobody", "subject": "x", "text": "x" * LARGE}).encode()
    pieces = (body[at : at + MIB] for at in range(0, len(body), MIB))
    connection = HTTPConnection("127.0.0.1", target.port, timeout=PATIENCE_S)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKENS['ACME']}", "Idempotency-Key": "x"}
    with suppress(OSError, HTTPException):
        connection.request("POST", "/v1/emails", pieces, headers, encode_chunked=True)
        connection.getresponse().read()
    connection.close()


def hostile_html(target: Target) -> None:
    size = 40_000
    for again in ("<", "a", "<a ", '<a "', "<script>", "</script ", "<!--", "<a href=https://a.test/>", "&", "\n"):
        target.mail(html="<" + again * (size // len(again)))


def multiplying_templates(target: Target) -> None:
    for value in ("x" * 60_000, "&" * 60_000):
        body = json.dumps({"variables": {"name": value}}).encode()
        target.ask("/v1/templates/tpl_multiply/render", body)
        sent = {"to": "a@example.com", "from": "hello@acme.test", "template_id": "tpl_multiply"}
        body = json.dumps({**sent, "variables": {"name": value}}).encode()
        target.ask("/v1/emails?dry_run=true", body)
        target.ask("/v1/emails", body)
    groups = {"customer": {"x" * 30_000: {f"n{number}": 1 for number in range(3_000)}}}
    target.ask("/v1/templates/tpl_multiply/render", json.dumps({"variables": groups}).encode())


def bounces(target: Target) -> None:
    for again in (b"\n- ", b"\n ", b"a b ", b"a", b"550 5.1.1 ", b"Action: failed\n\n", b"=?utf-8?q?", b"<a"):
        target.bounce(many(b"Subject: x\n\n", again, b"", MAIL))
        target.bounce(many(b"Content-Type: multipart/mixed; boundary=x\n", b"\n--x\n\n" + again * 10_000, b"", MAIL))
    target.bounce(b"Subject: x\n\nx", recipients=20_000)


def slow_sockets(target: Target) -> None:
    """Headers, bodies and sessions that never end, and many that say nothing."""
    held = [target.hold(b"") for _ in range(SOCKETS)]
    held += [target.hold(b"GET / HTTP/1.1\r\nX-" + b"a" * number) for number in range(SOCKETS)]
    held += [target.hold(head("ACME", 39 * MIB)) for _ in range(3)]
    held += [target.hold(head("ACME", 39 * MIB) + b"{" + b" " * 100_000) for _ in range(3)]
    held += [target.hold(b"GET /dashboard/live HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(SOCKETS)]
    sessions = [socket.create_connection(("127.0.0.1", target.bounces)) for _ in range(SOCKETS)]
    target.mail(text="x" * 100_000)
    for each in held + sessions:
        each.close()


def long_addresses(target: Target) -> None:
    for again in ("a", "a.", "xn--", "é", " ", '"', "a@"):
        target.mail(text="x", to=again * (LARGE // 8))
        target.mail(text="x", **{"from": f"{again * (LARGE // 8)} <hello@acme.test>"})


COLLECTION: tuple[Attack, ...] = (
    forms,
    repeated_keys,
    large_json,
    many_values,
    chunked_bodies,
    hostile_html,
    multiplying_templates,
    bounces,
    slow_sockets,
    long_addresses,
)

# -- the proof ---------------------------------------------------------------------------------------------


class Sink(socketserver.StreamRequestHandler):
    """A mail server that takes all."""

    def handle(self) -> None:
        self.wfile.write(b"220 sink\r\n")
        in_data = False
        for line in self.rfile:
            if in_data:
                in_data = line != b".\r\n"
                if not in_data:
                    self.wfile.write(b"250 ok\r\n")
            elif line.upper().startswith(b"DATA"):
                in_data = True
                self.wfile.write(b"354 go on\r\n")
            else:
                self.wfile.write(b"250 ok\r\n")


class Sinks(socketserver.ThreadingTCPServer):
    daemon_threads = allow_reuse_address = True


@contextmanager
def sink() -> Iterator[int]:
    with Sinks(("127.0.0.1", 0), Sink) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


class Wait(NamedTuple):
    seconds: float
    computed: float  # of them, by the service

    def __str__(self) -> str:
        return f"{self.seconds:.3f} s ({self.computed:.3f} s of CPU)"


class Probe:
    def __init__(self, port: int, pid: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROBE, str(port), str(pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def longest(self) -> Wait:
        """Since it was last asked, what is under way included."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Wait(*map(float, self._process.stdout.readline().split()))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def test_hostile_request_delays_no_other_request(database_url: str, tmp_path: Path) -> None:
    bounce_port = free_port()
    more = tmp_path / "more.toml"
    with sink() as port, Service(database_url, tmp_path / "data", bounce_listen=f"127.0.0.1:{bounce_port}") as service:
        more.write_text(MORE.format(port=port, text="{{customer.name}}" * 3_000))
        service.apply(SETUP)
        service.apply(more)
        process = service.start()
        first = service.post(
            "/v1/emails", {"to": "a@example.com", "from": "hello@acme.test", "subject": "x", "text": "x"}
        )
        until(lambda: service.get(f"/v1/emails/{first.json['id']}").json["status"] == "sent", 120)  # its keys are made
        probe = Probe(service.ports[0], process.pid)
        target, late, name = Target(service.ports[0], bounce_port), 0.0, database_name(database_url)
        try:
            report("P21", f"{name}, /healthz of another client, before: {probe.longest()}")
            for attack in COLLECTION:
                attack(target)
                wait = probe.longest()
                late = max(late, wait.computed)
                report("P21", f"{name}, {attack.__name__.replace('_', ' ')}: {wait}")
        finally:
            probe.close()
    assert late <= LATE_S
