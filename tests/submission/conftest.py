"""A service with SMTP submission (plain, STARTTLS, implicit TLS) that sends to a sink."""

import smtplib
import socket
import ssl
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from tests.carriers.smtp_peer import Authority
from tests.journeys.smtp_sink import Sink
from tests.journeys.test_email import CARRIER
from tests.service import PATIENCE_S, TOKENS, Service, until

HOST = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


class SubmissionClient:
    """The service, and clients of it."""

    def __init__(self, folder: Path, sink: Sink) -> None:
        self.port, self.second_port, self.tls_port = free_port(), free_port(), free_port()
        self.authority = Authority()
        self.pem = folder / "server.pem"
        self.sink = sink
        self.renew()
        self.service = Service(
            f"sqlite:///{folder / 'heliograph.db'}",
            folder / "data",
            submission_listen=f"{HOST}:{self.port}, {HOST}:{self.second_port}",
            submission_tls_listen=f"{HOST}:{self.tls_port}",
            submission_cert=str(self.pem),
            submission_key=str(self.pem),
        )

    def renew(self) -> int:
        """Install another certificate; return its serial number."""
        pem, certificate = self.authority.pem(HOST)
        self.pem.write_bytes(pem)
        return certificate.serial_number

    @property
    def trusted(self) -> ssl.SSLContext:
        return self.authority.trusted()

    def client(self, key: str = "ACME", user: str = "heliograph") -> smtplib.SMTP:
        client = smtplib.SMTP(HOST, self.port, timeout=PATIENCE_S)
        client.login(user, TOKENS.get(key, key))
        return client

    def send(
        self, mail: EmailMessage, to: list[str] | None = None, *, key: str = "ACME", user: str = "heliograph"
    ) -> str:
        """Return the message's id; raises smtplib's error."""
        with self.client(key, user) as client:
            client.ehlo_or_helo_if_needed()
            code, reply = deliver(client, mail, to)
        if code != 250:
            raise smtplib.SMTPDataError(code, reply)
        return reply.decode().removeprefix("2.0.0 Ok: ")

    def sent(self, id_: str) -> Any:
        return self.service.get(f"/v1/emails/{id_}").json

    def received_mail(self, id_: str, to: str) -> EmailMessage:
        """Return the mail that the sink received for this recipient."""

        def matching() -> list[bytes]:
            message_id_line = f"Message-ID: <{id_}@".encode()
            return [raw for _, recipients, raw in self.sink.mails if to in recipients and message_id_line in raw]

        mail = message_from_bytes(until(matching)[0], policy=policy.default)
        assert isinstance(mail, EmailMessage)
        return mail


def deliver(client: smtplib.SMTP, mail: EmailMessage, to: list[str] | None = None) -> tuple[int, bytes]:
    """Send a mail and return the server's reply, which smtplib's own functions do not return."""
    headers = [field for name in ("To", "Cc") for field in mail.get_all(name, [])]
    code, reply = client.mail("bounce@acme.test", ["SMTPUTF8"])
    for recipient in to or [address.addr_spec for field in headers for address in field.addresses]:
        if code == 250:
            client.putcmd("RCPT", f"TO:<{recipient}>")
            code, reply = client.getreply()
    try:
        return client.data(mail.as_bytes(policy=policy.SMTPUTF8)) if code == 250 else (code, reply)
    except smtplib.SMTPDataError as error:  # refused before the mail was sent
        return error.smtp_code, bytes(error.smtp_error)  # type: ignore[arg-type]


def mail(**fields: str) -> EmailMessage:
    """Return a mail with these headers; underscores in names stand for dashes."""
    message = EmailMessage()
    values = {"From": "hi@acme.test", "To": "ada@example.com", "Subject": "Hello"} | fields
    for name, value in values.items():
        message[name.replace("_", "-")] = value
    message.set_content("It works.\n")
    return message


@pytest.fixture(scope="session")
def post(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SubmissionClient]:
    folder = tmp_path_factory.mktemp("submission")
    with Sink() as sink:
        post = SubmissionClient(folder, sink)
        with post.service as service:
            service.apply()
            (folder / "carrier.toml").write_text(CARRIER.format(port=sink.port))
            service.apply(folder / "carrier.toml")
            service.start()
            yield post
