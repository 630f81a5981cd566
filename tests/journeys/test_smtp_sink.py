"""A message sent over HTTP as received by an independent mail server: Postfix's smtp-sink, which stores its mails."""

import base64
import email
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from email.header import decode_header, make_header
from email.message import Message
from pathlib import Path

import dkim
import pytest

from tests.carriers.test_dkim import MAILAUTH, mailauth
from tests.journeys.test_email import CARRIER, send, status
from tests.service import Service, until

__all__ = ["mailauth"]  # a fixture

SINK = shutil.which("smtp-sink") or shutil.which("smtp-sink", path="/usr/sbin")
# Lines that the sink writes before a mail: client, envelope, and its own Received field.
OWN = re.compile(rb"(?:X-[^\n]*\n)+Received: [^\n]*\n(?:\t[^\n]*\n)+")

LARGE = bytes(range(256)) * 2000  # above 256 KiB: stored as a file
SMALL = b"a,b\r\n.\r\n1,2\r\n"
TEXT = "Dear reader,\n\n.\n.. dots at the start,\nFrom the start,\nand ✓ a line of " + "many words " * 30 + "end."

Arrived = tuple[str, list[tuple[bytes, bytes]], dict[str, str]]  # id, (the sink's lines, the mail), DKIM records


def written(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    assert isinstance(payload, bytes)
    return payload


@pytest.fixture(scope="module")
def sink() -> Iterator[tuple[int, Path]]:
    """Run smtp-sink; yield its port and the folder of its mails."""
    if SINK is None:
        pytest.skip("nothing is sent to Postfix's smtp-sink: it is not here (Debian's package postfix has it)")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    # Not in pytest's own folder: as root the sink runs as another user, whom that folder keeps out.
    with tempfile.TemporaryDirectory(prefix="heliograph-sink-") as folder:
        os.chmod(folder, 0o777)
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        running = subprocess.Popen([SINK, *user, "-d", f"{folder}/", f"127.0.0.1:{port}", "10"])
        try:
            until(lambda: _takes_connections(port))
            yield port, Path(folder)
        finally:
            running.kill()
            running.wait()


@pytest.fixture(scope="module")
def arrived(sink: tuple[int, Path], tmp_path_factory: pytest.TempPathFactory) -> Arrived:
    port, folder = sink
    own = tmp_path_factory.mktemp("service")
    carrier = own / "carrier.toml"
    carrier.write_text(CARRIER.format(port=port))
    with Service(f"sqlite:///{own / 'heliograph.db'}", own / "data") as service:
        service.apply()
        service.apply(carrier)
        service.start()
        files = [("räkning.pdf", "application/pdf", LARGE), ("a.csv", "text/csv", SMALL)]
        id_ = send(
            service,
            bcc=["canary@example.net"],
            subject="Räkning ✓",
            text=TEXT,
            html="<p>Hi</p>",
            attachments=[
                {"filename": name, "content_type": type_, "content": base64.b64encode(content).decode()}
                for name, type_, content in files
            ],
        )
        until(lambda: status(service, id_) == "sent")
        shown = json.loads(service.run("domain", "dns", "acme.test", "--json").stdout)["records"]
    records = {record["name"]: record["value"] for record in shown if record["purpose"] == "dkim"}
    return id_, [_split(path.read_bytes()) for path in folder.iterdir()], records


def _takes_connections(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _split(kept: bytes) -> tuple[bytes, bytes]:
    """Return the sink's own lines and the received mail; the sink stores LF line ends and adds an empty line."""
    own = OWN.match(kept)
    assert own
    return own[0], kept[own.end() : -1].replace(b"\n", b"\r\n")


def test_mail_arrives_complete_and_without_bcc(arrived: Arrived) -> None:
    id_, mails, _ = arrived
    envelopes = b"".join(own for own, _ in mails)
    recipients = re.findall(rb"X-Rcpt-Args: <([^>]*)>", envelopes)
    assert sorted(recipients) == [b"Someone@example.com", b"canary@example.net"]
    assert len(set(re.findall(rb"X-Mail-Args: <(b[^>]*@bounce\.acme\.test)>", envelopes))) == 2
    (raw,) = {mail for _, mail in mails}  # built and signed once
    assert b"canary" not in raw

    mail = email.message_from_bytes(raw)
    assert mail["Message-ID"] == f"<{id_}@acme.test>"
    assert mail["To"] == "Someone@example.com"
    assert str(make_header(decode_header(mail["Subject"]))) == "Räkning ✓"
    text, html, large, small = [part for part in mail.walk() if not part.is_multipart()]
    assert written(text).decode().replace("\r\n", "\n").rstrip("\n") == TEXT
    assert written(html).strip() == b"<p>Hi</p>"
    assert [part.get_filename() for part in (large, small)] == ["räkning.pdf", "a.csv"]
    assert [written(part) for part in (large, small)] == [LARGE, SMALL]


def test_dkimpy_verifies_both_signatures(arrived: Arrived) -> None:
    _, mails, records = arrived
    for _, mail in mails:
        judge = dkim.DKIM(mail)
        assert sum(name.lower() == b"dkim-signature" for name, _ in judge.headers) == 2
        for index in range(2):
            assert judge.verify(index, lambda name, timeout=5: records[name.decode().rstrip(".")].encode())


def test_mailauth_verifies_both_signatures(arrived: Arrived, mailauth: Path) -> None:
    _, mails, records = arrived
    asked = {"records": records, "mails": [base64.b64encode(mail).decode() for _, mail in mails]}
    done = subprocess.run(
        ["node", "-e", MAILAUTH], cwd=mailauth, input=json.dumps(asked).encode(), capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode()
    good = [["ed25519-sha256", "pass"], ["rsa-sha256", "pass"]]
    assert [sorted(said) for said in json.loads(done.stdout)] == [good, good]
