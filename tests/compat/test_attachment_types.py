"""`attachment_types`: additional file types that the operator allows, in every API."""

import smtplib
from base64 import b64encode
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

import pytest

from tests.service import PATIENCE_S, TOKENS, Service, free_port, until

TO, FROM = "delivered@simulator.test", "hello@acme.test"
XML = b"<Invoice/>"
FILE = b64encode(XML).decode()
OCTETS = "application/octet-stream"


def mail(filename: str, kind: str | None) -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = FROM, TO, "Hi"
    message.set_content("x")
    main, _, sub = (kind or OCTETS).partition("/")
    message.add_attachment(XML, maintype=main, subtype=sub, filename=filename)
    return message


class Edges(Service):
    mails = 0

    def set(self, folder: Path, setup: str) -> str:
        file = folder / "setup.toml"
        file.write_text(setup)
        return self.run("apply", str(file)).stderr

    def v1(self, filename: str, kind: str | None) -> str | None:
        file = {"filename": filename, "content": FILE, "content_type": kind}
        body = {"from": FROM, "to": TO, "subject": "Hi", "text": "x", "attachments": [file]}
        answer = self.post("/v1/emails", body)
        return answer.json["error"]["message"] if answer.status >= 400 else None

    def resend(self, filename: str, kind: str | None) -> str | None:
        file = {"filename": filename, "content": FILE} | ({"content_type": kind} if kind else {})
        body = {"from": FROM, "to": TO, "subject": "Hi", "text": "x", "attachments": [file]}
        answer = self.post("/compat/resend/emails", body)
        return answer.json["message"] if answer.status >= 400 else None

    def postmark(self, filename: str, kind: str | None) -> str | None:
        file = {"Name": filename, "Content": FILE, "ContentType": kind}
        body = {"From": FROM, "To": TO, "Subject": "Hi", "TextBody": "x", "Attachments": [file]}
        headers = {"X-Postmark-Server-Token": TOKENS["ACME"]}
        answer = self.post("/compat/postmark/email", body, key=None, headers=headers).json
        return answer["Message"] if answer["ErrorCode"] else None

    def v1_batch(self, filename: str, kind: str | None) -> str | None:
        file = {"filename": filename, "content": FILE, "content_type": kind}
        body = {"from": FROM, "to": TO, "subject": "Hi", "text": "x", "attachments": [file]}
        answer = self.post("/v1/emails/batch", {"messages": [body]})
        return answer.json["error"]["message"] if answer.status >= 400 else None

    def resend_batch(self, filename: str, kind: str | None) -> str | None:
        file = {"filename": filename, "content": FILE} | ({"content_type": kind} if kind else {})
        body = {"from": FROM, "to": TO, "subject": "Hi", "text": "x", "attachments": [file]}
        answer = self.post("/compat/resend/emails/batch", [body])
        return answer.json["message"] if answer.status >= 400 else None

    def postmark_batch(self, filename: str, kind: str | None) -> str | None:
        file = {"Name": filename, "Content": FILE, "ContentType": kind}
        body = {"From": FROM, "To": TO, "Subject": "Hi", "TextBody": "x", "Attachments": [file]}
        headers = {"X-Postmark-Server-Token": TOKENS["ACME"]}
        (answer,) = self.post("/compat/postmark/email/batch", [body], key=None, headers=headers).json
        return answer["Message"] if answer["ErrorCode"] else None

    def postal_raw(self, filename: str, kind: str | None) -> str | None:
        fields = {"mail_from": FROM, "rcpt_to": [TO], "data": b64encode(mail(filename, kind).as_bytes()).decode()}
        headers = {"X-Server-API-Key": TOKENS["ACME"]}
        answer = self.post("/compat/postal/api/v1/send/raw", fields, key=None, headers=headers).json
        return answer["data"]["message"] if answer["status"] == "error" else None

    def postal(self, filename: str, kind: str | None) -> str | None:
        file = {"name": filename, "data": FILE, "content_type": kind}
        body = {"from": FROM, "to": [TO], "subject": "Hi", "plain_body": "x", "attachments": [file]}
        headers = {"X-Server-API-Key": TOKENS["ACME"]}
        answer = self.post("/compat/postal/api/v1/send/message", body, key=None, headers=headers).json
        return answer["data"]["message"] if answer["status"] == "error" else None

    def smtp(self, filename: str, kind: str | None) -> str | None:
        with smtplib.SMTP("127.0.0.1", self.mails, timeout=PATIENCE_S) as client:
            client.login("heliograph", TOKENS["ACME"])
            try:
                client.send_message(mail(filename, kind))
            except smtplib.SMTPDataError as error:
                return str(error.smtp_error)
        return None


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edges]:
    folder, mails = tmp_path_factory.mktemp("types"), free_port()
    with Edges(
        f"sqlite:///{folder / 'heliograph.db'}", folder / "data", submission_listen=f"127.0.0.1:{mails}"
    ) as service:
        service.mails = mails
        service.apply()
        service.start()
        yield service


EDGES = ("v1", "v1_batch", "resend", "resend_batch", "postmark", "postmark_batch", "postal", "postal_raw", "smtp")
SENDS = [(edge, kind) for edge in EDGES for kind in ("application/xml", None)]


@pytest.mark.parametrize("where", ["[platform]", '[[teams]]\nid = "team_acme"'])
def test_a_type_is_refused_until_it_is_added(edges: Edges, tmp_path: Path, where: str) -> None:
    for edge, kind in SENDS:
        refusal = getattr(edges, edge)("invoice.xml", kind)
        assert "'invoice.xml'" in refusal, edge
        assert repr(kind or OCTETS) in refusal or (kind is None and "the extension is unknown" in refusal), edge
        assert "ask an operator to allow this type (setting attachment_types" in refusal
    assert not edges.set(tmp_path, f'{where}\nattachment_types = ["application/xml"]\n')
    until(lambda: edges.v1("invoice.xml", "application/xml") is None)
    assert {send: getattr(edges, send[0])("invoice.xml", send[1]) for send in SENDS} == dict.fromkeys(SENDS)
    assert not edges.set(tmp_path, f"{where}\nattachment_types = []\n")
    until(lambda: edges.v1("invoice.xml", "application/xml"))


@pytest.mark.parametrize("kind", ["xml", "Application/XML", "message/rfc822", "multipart/mixed", "text/x;a=b"])
def test_an_invalid_type_is_refused(edges: Edges, tmp_path: Path, kind: str) -> None:
    output = edges.set(tmp_path, f'[platform]\nattachment_types = ["{kind}"]\n')
    assert "platform.attachment_types[0]: expected a media type" in output
