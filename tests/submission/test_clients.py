"""Unmodified programs send mail in their own way, and the mail arrives unchanged."""

import json
import shutil
import smtplib
import subprocess
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.mail import EmailMultiAlternatives, get_connection

from tests.npm import install, miss
from tests.service import PATIENCE_S, TOKENS
from tests.submission.conftest import HOST, SubmissionClient, mail

KEY = TOKENS["ACME"]
PHPMAILER = Path("/usr/share/php/libphp-phpmailer/src")


def program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        miss(name, f"{name} is not installed")
    return path or ""


def run_program(*command: str, stdin: str = "", folder: Path | None = None) -> str:
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def received_mail(post: SubmissionClient, subject: str, to: str) -> EmailMessage:
    """Return the newest message with this subject, as received."""
    sent = post.service.get("/v1/emails").json["data"]
    return post.received_mail(next(message["id"] for message in sent if message["subject"] == subject), to)


def texts(mail: EmailMessage) -> dict[str, Any]:
    return {part.get_content_type(): part.get_payload(decode=True) for part in mail.walk() if not part.is_multipart()}


def test_smtplib_submits_a_mail(post: SubmissionClient) -> None:
    with post.client() as client:
        assert client.send_message(mail(Subject="smtplib ü"), to_addrs=["ada@example.com", "blind@example.com"]) == {}
    assert received_mail(post, "smtplib ü", "blind@example.com")["To"] == "ada@example.com"


def test_restricted_key_submits_only_what_is_permitted(post: SubmissionClient) -> None:
    restrictions = {"recipients": ["*@example.com"], "per_day": 2}
    created = post.service.post("/v1/keys", {"name": "restricted smtp", "restrictions": restrictions})
    key = created.json["token"]
    with pytest.raises(smtplib.SMTPDataError, match=r"\(550, b'5\.7\.1 .*ada@example\.org"):
        post.send(mail(To="ada@example.org"), ["ada@example.org"], key=key)
    for _ in range(2):
        assert post.send(mail(), ["ada@example.com"], key=key).startswith("eml_")
    with pytest.raises(smtplib.SMTPDataError, match=r"\(452, b'4\.7\.1 "):
        post.send(mail(), ["ada@example.com"], key=key)


def test_django_submits_a_mail(post: SubmissionClient, monkeypatch: pytest.MonkeyPatch) -> None:
    if not django_settings.configured:
        django_settings.configure(DEFAULT_CHARSET="utf-8", EMAIL_USE_LOCALTIME=False, USE_I18N=False)
    connection = get_connection(
        "django.core.mail.backends.smtp.EmailBackend", host=HOST, port=post.port, username="heliograph", password=KEY
    )
    message = EmailMultiAlternatives(
        "Django ü", "Text ü", "Acme <hi@acme.test>", ["Ada <ada@example.com>"], ["blind@example.com"],
        cc=["cc@example.com"], reply_to=["help@acme.test"], headers={"X-Own": "kept"}, connection=connection,
    )  # fmt: skip
    message.attach_alternative("<p>HTML ü</p>", "text/html")
    message.attach("a.csv", "a,ü\n", "text/csv")
    assert message.send() == 1
    mail = received_mail(post, "Django ü", "blind@example.com")
    assert (mail["To"], mail["Cc"], mail["Reply-To"], mail["X-Own"]) == (
        "Ada <ada@example.com>", "cc@example.com", "help@acme.test", "kept",
    )  # fmt: skip
    assert texts(mail)["text/html"] == "<p>HTML ü</p>".encode()
    assert texts(mail)["text/csv"].decode().strip() == "a,ü"


NODEMAILER = """
const nodemailer = require("nodemailer");
const [host, port, tlsPort, pass] = process.argv.slice(2);
const auth = {user: "heliograph", pass}, tls = {rejectUnauthorized: false};
(async () => {
  const clear = nodemailer.createTransport({host, port: +port, auth, tls, pool: true});
  const inside = nodemailer.createTransport({host, port: +tlsPort, secure: true, auth, tls});
  const message = {
    from: {name: "Acme", address: "hi@acme.test"}, to: "Ada <ada@example.com>", bcc: "blind@example.com",
    subject: "nodemailer ü", text: "Text ü", html: '<img src="cid:logo">',
    attachments: [{filename: "logo.png", content: Buffer.from("PNG"), cid: "logo"}, {filename: "ü.txt", content: "ü"}],
    headers: {"X-PM-Tag": "node"},
  };
  const sent = await clear.sendMail(message);
  const again = await inside.sendMail({...message, subject: "nodemailer inside TLS"});
  const refused = await clear.sendMail({...message, from: "hi@elsewhere.test"}).catch(error => error);
  console.log(JSON.stringify({response: sent.response, again: again.response, code: refused.responseCode, said: refused.response}));
  clear.close();
})();
"""  # noqa: E501


@pytest.mark.slow
def test_nodemailer_submits_a_mail(post: SubmissionClient, tmp_path: Path) -> None:
    install(tmp_path, "nodemailer")
    (tmp_path / "send.js").write_text(NODEMAILER)
    ports = (str(post.port), str(post.tls_port))
    output = json.loads(run_program(program("node"), "send.js", HOST, *ports, KEY, folder=tmp_path))
    assert output["response"].startswith("250 2.0.0 Ok: eml_")
    assert output["again"].startswith("250 2.0.0 Ok: eml_")
    assert (output["code"], output["said"][:34]) == (550, "550 5.7.1 from_domain_unverified: ")
    mail = received_mail(post, "nodemailer ü", "blind@example.com")
    assert texts(mail)["text/html"] == b'<img src="cid:logo">'
    assert {part.get_filename(): part["Content-ID"] for part in mail.walk() if part.get_filename()} == {
        "logo.png": "<logo>",
        "ü.txt": None,
    }


def test_swaks_submits_a_mail(post: SubmissionClient) -> None:
    output = run_program(
        program("swaks"), "--server", f"{HOST}:{post.port}", "--tls", "--auth", "LOGIN", "--auth-user", "apikey",
        "--auth-password", KEY, "--from", "hi@acme.test", "--to", "ada@example.com,bob@example.com",
        "--header", "Subject: swaks", "--body", "Hello\n.dot\n",
        "--attach-type", "text/plain", "--attach-name", "a.txt", "--attach", "the file",
    )  # fmt: skip
    assert "250 2.0.0 Ok: eml_" in output
    mail = received_mail(post, "swaks", "bob@example.com")
    assert [part.get_payload(decode=True) for part in mail.walk() if not part.is_multipart()] == [
        b"Hello\r\n.dot",
        b"the file",
    ]


def test_msmtp_submits_a_mail(post: SubmissionClient, tmp_path: Path) -> None:
    config = tmp_path / "msmtprc"
    config.write_text(
        f"account default\nhost {HOST}\nport {post.port}\ntls on\ntls_starttls on\ntls_certcheck off\n"
        f"auth plain\nuser heliograph\npassword {KEY}\nfrom root@localhost\n"
    )
    config.chmod(0o600)
    letter = "From: hi@acme.test\nTo: ada@example.com\nSubject: msmtp\n\nHello\n"
    run_program(program("msmtp"), "-C", str(config), "-t", stdin=letter)
    assert texts(received_mail(post, "msmtp", "ada@example.com"))["text/plain"].strip() == b"Hello"


PHP = """<?php
foreach (['Exception', 'SMTP', 'PHPMailer'] as $name) require "$argv[1]/$name.php";
$mail = new PHPMailer\\PHPMailer\\PHPMailer(true);
$mail->isSMTP(); $mail->Host = $argv[2]; $mail->Port = $argv[3]; $mail->SMTPAuth = true; $mail->SMTPSecure = 'tls';
$mail->SMTPOptions = ['ssl' => ['verify_peer' => false, 'verify_peer_name' => false, 'allow_self_signed' => true]];
$mail->Username = 'heliograph'; $mail->Password = $argv[4]; $mail->CharSet = 'UTF-8';
$mail->setFrom('hi@acme.test', 'Acme'); $mail->addAddress('ada@example.com', 'Ada Ü');
$mail->addBCC('blind@example.com'); $mail->addReplyTo('help@acme.test', 'Help');
$mail->isHTML(true); $mail->Subject = 'PHPMailer ü'; $mail->addStringAttachment('%PDF', 'ü.pdf');
$mail->addStringEmbeddedImage('PNG', 'logo', 'logo.png', 'base64', 'image/png');
$mail->Body = '<img src="cid:logo"> ü'; $mail->AltBody = 'Text ü';
$mail->send();
"""


def test_phpmailer_submits_a_mail(post: SubmissionClient, tmp_path: Path) -> None:
    if not PHPMAILER.exists():
        miss("PHPMailer", "the package libphp-phpmailer is not installed")
    (tmp_path / "send.php").write_text(PHP)
    run_program(program("php"), str(tmp_path / "send.php"), str(PHPMAILER), HOST, str(post.port), KEY)
    mail = received_mail(post, "PHPMailer ü", "blind@example.com")
    assert mail["To"] == "Ada Ü <ada@example.com>"
    assert texts(mail)["text/html"].decode() == '<img src="cid:logo"> ü'
    assert [part.get_filename() for part in mail.walk() if part.get_filename()] == ["logo.png", "ü.pdf"]
