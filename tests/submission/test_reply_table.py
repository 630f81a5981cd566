"""The table of SMTP replies in the docs, row by row."""

import base64
import json
import smtplib
import socket
import ssl

import pytest

from heliograph.domain.refusals import DirectSendsPaused
from heliograph.smtp.session import SmtpServerSettings
from heliograph.submission.replies import reply_to
from heliograph.submission.session import LIMITS, SubmissionSession
from tests.service import PATIENCE_S, TOKENS, until
from tests.submission.conftest import HOST, SubmissionClient, deliver, mail


class UnauthenticatedClient:
    """The server side of a connection from another machine."""

    peer, is_encrypted = "192.0.2.1", False

    def __init__(self) -> None:
        self.replies: list[bytes] = []

    def write_line(self, reply: bytes) -> None:
        self.replies.append(reply)


def refused(post: SubmissionClient, *args: object, **options: object) -> str:
    with pytest.raises(smtplib.SMTPResponseException) as error:
        post.send(*args, **options)  # type: ignore[arg-type]
    return f"{error.value.smtp_code} {error.value.smtp_error.decode()}"  # type: ignore[union-attr]


# -- ports, EHLO, AUTH, STARTTLS ---------------------------------------------------------------------------


def test_service_listens_on_several_ports_and_with_implicit_tls(post: SubmissionClient) -> None:
    for port in (post.port, post.second_port):
        with smtplib.SMTP(HOST, port, timeout=PATIENCE_S) as client:
            assert client.starttls(context=post.trusted)[0] == 220
            client.login("apikey", TOKENS["ACME"])
    with smtplib.SMTP_SSL(HOST, post.tls_port, context=post.trusted, timeout=PATIENCE_S) as client:
        client.login("resend", TOKENS["ACME"])
        assert "starttls" not in client.esmtp_features
        assert deliver(client, mail())[0] == 250


def test_a_renewed_certificate_is_used_without_a_restart(post: SubmissionClient) -> None:
    def serial() -> int:
        with (
            socket.create_connection((HOST, post.tls_port)) as plain,
            post.trusted.wrap_socket(plain, server_hostname=HOST) as tls_socket,
        ):
            return int(tls_socket.getpeercert()["serialNumber"], 16)  # type: ignore[index, arg-type]

    old = serial()
    post.pem.write_text("half written")
    new = post.renew()
    assert new != old
    assert until(lambda: serial() == new)


def test_ehlo_lists_the_extensions(post: SubmissionClient) -> None:
    with smtplib.SMTP(HOST, post.port, timeout=PATIENCE_S) as client:
        client.ehlo()
        offered = client.esmtp_features
        assert offered.pop("auth").split() == ["PLAIN", "LOGIN"]
        assert offered == {
            "size": "36700160",
            "8bitmime": "",
            "smtputf8": "",
            "pipelining": "",
            "enhancedstatuscodes": "",
            "starttls": "",
        }
        client.starttls(context=post.trusted)
        client.ehlo()
        assert "starttls" not in client.esmtp_features


@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN"])
@pytest.mark.parametrize("initial", [True, False])
def test_auth_with_any_user_and_the_key_as_password(post: SubmissionClient, mechanism: str, initial: bool) -> None:
    with smtplib.SMTP(HOST, post.port, timeout=PATIENCE_S) as client:
        client.ehlo()
        client.user, client.password = TOKENS["ACME"], TOKENS["ACME"]
        ask = client.auth_plain if mechanism == "PLAIN" else client.auth_login
        assert client.auth(mechanism, ask, initial_response_ok=initial)[0] == 235
        assert client.docmd("AUTH", "PLAIN AAAA")[0] == 503


def test_wrong_key_is_refused_and_three_close_the_connection(post: SubmissionClient) -> None:
    with smtplib.SMTP(HOST, post.port, timeout=PATIENCE_S) as client:
        client.ehlo()
        wrong = base64.b64encode(b"\0u\0hk_wrong").decode()
        assert client.docmd("AUTH", f"PLAIN {wrong}")[1].startswith(b"5.7.8 invalid_api_key: ")
        assert client.docmd("AUTH", f"PLAIN {wrong}")[0] == 535
        assert client.docmd("AUTH", f"PLAIN {wrong}")[0] == 535
        assert client.getreply()[0] == 421


def test_mail_needs_auth_and_auth_needs_a_greeting(post: SubmissionClient) -> None:
    with smtplib.SMTP(HOST, post.port, timeout=PATIENCE_S) as client:
        assert client.docmd("AUTH", "PLAIN AAAA")[0] == 503
        client.ehlo()
        assert client.docmd("MAIL", "FROM:<a@acme.test>") == (
            530,
            b"5.7.0 Authenticate first, with an API key as the password",
        )
        assert client.docmd("AUTH", "CRAM-MD5")[0] == 504


def test_cleartext_sent_behind_starttls_is_discarded(post: SubmissionClient) -> None:
    with socket.create_connection((HOST, post.port), timeout=PATIENCE_S) as plain:
        plain.recv(1000)
        plain.sendall(b"EHLO x\r\n")
        plain.recv(1000)
        token = base64.b64encode(b"\0u\0" + TOKENS["ACME"].encode())
        plain.sendall(b"STARTTLS\r\nEHLO injected\r\nAUTH PLAIN " + token + b"\r\n")
        assert plain.recv(1000) == b"220 2.0.0 Go ahead\r\n"
        with post.trusted.wrap_socket(plain, server_hostname=HOST) as tls_socket:
            tls_socket.sendall(b"MAIL FROM:<a@acme.test>\r\n")
            assert tls_socket.recv(1000) == b"503 5.5.1 Send EHLO first\r\n"


# -- who gets it -------------------------------------------------------------------------------------------


def test_envelope_recipients_without_a_header_become_bcc(post: SubmissionClient) -> None:
    message = mail(To="Ada <ada@example.com>, absent@example.com", Cc="=?utf-8?q?B=C3=B6b?= <bob@example.com>")
    id_ = post.send(message, ["eve@other.example", "ada@example.com", "BOB@example.com"])
    sent = post.sent(id_)
    assert (sent["to_addresses"], sent["cc"], sent["bcc"]) == (
        ["ada@example.com"], ["BOB@example.com"], ["eve@other.example"],
    )  # fmt: skip
    received = post.received_mail(id_, "eve@other.example")
    assert (
        received["To"] == '"Ada" <ada@example.com>, absent@example.com'
        or received["To"] == "Ada <ada@example.com>, absent@example.com"
    )
    assert received["Cc"] == "Böb <bob@example.com>"
    assert "eve@other.example" not in received.as_string()


def test_mail_with_only_bcc_recipients_is_accepted(post: SubmissionClient) -> None:
    message = mail()
    del message["To"]
    id_ = post.send(message, ["first@example.com", "second@example.com"])
    sent = post.sent(id_)
    assert (sent["to"], sent["to_addresses"], sent["bcc"]) == (
        "first@example.com", ["first@example.com"], ["second@example.com"],
    )  # fmt: skip
    for recipient in ("first@example.com", "second@example.com"):
        received = post.received_mail(id_, recipient)
        assert received["To"] == "undisclosed-recipients:;"
        assert "example.com" not in received.as_string().replace("@example.com>", "")


def test_sender_is_taken_from_the_header_not_the_envelope(post: SubmissionClient) -> None:
    id_ = post.send(mail(From="Acme Support <support@acme.test>"), ["ada@example.com"])
    assert post.received_mail(id_, "ada@example.com")["From"] == "Acme Support <support@acme.test>"
    sender = next(sender for sender, _, raw in post.sink.mails if id_.encode() in raw)
    assert sender != "bounce@acme.test"


def test_dsn_options_and_unpadded_base64_are_accepted(post: SubmissionClient) -> None:
    credentials = base64.b64encode(b"\0u\0" + TOKENS["ACME"].encode()).rstrip(b"=").decode()
    with smtplib.SMTP(HOST, post.port, timeout=PATIENCE_S) as client:
        client.starttls(context=post.trusted)
        client.ehlo()
        assert client.docmd("AUTH", f"PLAIN {credentials}")[0] == 235
        assert client.mail("hi@acme.test", ["RET=HDRS", "ENVID=1"])[0] == 250
        assert client.rcpt("ada@example.com", ["NOTIFY=SUCCESS,FAILURE", "ORCPT=rfc822;ada@example.com"])[0] == 250
        assert client.rcpt("ada@example.com", ["XWHAT=1"])[0] == 555
        assert client.data(mail().as_bytes())[0] == 250


def test_team_over_a_temporary_limit_gets_a_4xx_reply() -> None:
    assert reply_to(DirectSendsPaused("wait")).startswith("450 4.7.1 direct_sends_paused")


# -- MIME --------------------------------------------------------------------------------------------------


def test_mail_with_text_files_and_images_arrives(post: SubmissionClient) -> None:
    message = mail(Reply_To="Help <help@acme.test>", X_Own="kept", List_Id="<news.acme.test>", Received="dropped")
    message.add_alternative('<img src="cid:logo@acme">', subtype="html")
    html = message.get_body(("html",))
    assert html
    html.add_related(b"\x89PNG", "image", "png", cid="<logo@acme>")
    message.add_attachment(b"%PDF", maintype="application", subtype="octet-stream", filename="Ä.pdf")
    received = post.received_mail(post.send(message), "ada@example.com")
    parts = {part.get_content_type(): part for part in received.walk()}
    assert parts["text/plain"].get_payload(decode=True) == b"It works."
    assert parts["text/html"].get_payload(decode=True) == b'<img src="cid:logo@acme">'
    assert parts["image/png"]["Content-ID"] == "<logo@acme>"
    assert parts["application/pdf"].get_filename() == "Ä.pdf"
    assert (received["Reply-To"], received["X-Own"], received["List-Id"]) == (
        "help@acme.test",
        "kept",
        "<news.acme.test>",
    )
    assert received["Received"] is None


# -- 250 and refusals --------------------------------------------------------------------------------------


def test_250_reply_contains_the_message_id(post: SubmissionClient) -> None:
    id_ = post.send(mail())
    assert id_.startswith("eml_")
    assert post.sent(id_)["subject"] == "Hello"
    logged = post.service.get("/v1/emails").json["data"][0]
    assert logged["id"] == id_


REFUSED = {
    "550 5.7.1 recipient_suppressed: gone@example.com": ({"To": "gone@example.com"}, {}),
    "550 5.7.1 from_domain_unverified: ": ({"From": "hi@elsewhere.test"}, {}),
    "550 5.7.1 display_name_not_approved: ": ({"From": "Somebody <hi@acme.test>"}, {}),
    "550 5.7.1 key_domain_scope: ": ({}, {"key": "ACME_PINNED"}),
    "550 5.7.1 team_suspended: ": ({}, {"key": "SUSPENDED"}),
    "550 5.7.1 insufficient_scope: ": ({}, {"key": "ACME_MANAGE"}),
    "550 5.7.1 sandbox_from_locked: ": ({}, {"key": "SANDBOX"}),
    "550 5.7.1 invalid_from_address: ": ({"From": "a@acme.test, b@acme.test"}, {}),
    "554 5.6.0 missing_body: subject": ({"Subject": ""}, {}),
    "554 5.6.0 subject_too_long: ": ({"Subject": "x" * 201}, {}),
    "554 5.6.0 invalid_tags: ": ({"X_PM_Tag": "x" * 257}, {}),
    "554 5.6.0 invalid_schedule: ": ({"X_Heliograph_Send_At": "tomorrow"}, {}),
    "554 5.6.0 template_not_found: ": ({"X_Heliograph_Template": "tpl_none"}, {}),
    "554 5.6.0 invalid_request: The header for variables": ({"X_Heliograph_Variables": "{"}, {}),
    "554 5.6.0 invalid_idempotency_key: ": ({"Idempotency_Key": "x" * 256}, {}),
}  # fmt: skip


@pytest.mark.parametrize("said", REFUSED)
def test_refusal_has_its_reply_code_and_text(post: SubmissionClient, said: str) -> None:
    fields, options = REFUSED[said]
    assert refused(post, mail(**fields), **options).startswith(said)


def test_mail_with_refused_files_is_rejected(post: SubmissionClient) -> None:
    message = mail()
    message.add_attachment(b"MZ", maintype="application", subtype="octet-stream", filename="a.exe")
    assert refused(post, message).startswith("554 5.6.0 unsupported_attachment_type: ")
    message = mail()
    message.add_attachment(b"x" * (10 * 1024 * 1024 + 1), maintype="application", subtype="pdf", filename="a.pdf")
    assert refused(post, message).startswith("552 5.3.4 attachment_too_large: ")


def test_mail_too_large_by_size_option_or_content_is_rejected(post: SubmissionClient) -> None:
    with post.client() as client:
        client.ehlo_or_helo_if_needed()
        code, reply = client.docmd("MAIL", "FROM:<a@acme.test> SIZE=36700161")
        assert (code, reply[:6]) == (552, b"5.3.4 ")
        client.mail("a@acme.test")
        client.rcpt("ada@example.com")
        code, reply = client.data(b"Subject: x\r\n\r\n" + b"x" * 36700160)
        assert (code, reply[:24]) == (552, b"5.3.4 payload_too_large:")
        assert client.noop()[0] == 250


def test_too_many_or_malformed_recipients_are_rejected(post: SubmissionClient) -> None:
    with post.client() as client:
        client.ehlo_or_helo_if_needed()
        client.mail("a@acme.test")
        assert client.docmd("RCPT", "TO:<nobody>")[1].startswith(b"5.1.3 ")
        assert client.docmd("RCPT", "TO:<nobody>")[0] == 501
        for number in range(50):
            assert client.rcpt(f"r{number}@example.com")[0] == 250
        code, reply = client.rcpt("r50@example.com")
        assert (code, reply[:6]) == (452, b"4.5.3 ")
        assert client.rcpt("r49@example.com")[0] == 250  # once more
        code, reply = client.data(mail().as_bytes())
        assert code == 250
    assert post.sent(reply.decode().split()[-1])["recipient_count"] == 50


def test_rate_limit_of_the_key_applies(post: SubmissionClient) -> None:
    with post.client("SLOW") as client:
        client.ehlo_or_helo_if_needed()
        message = mail(From="hello@sandbox.heliograph.test", To="delivered@simulator.test")
        answers = [deliver(client, message) for _ in range(8)]
    assert answers[0][0] == 250
    code, reply = next(answer for answer in answers if answer[0] != 250)
    assert (code, reply[:27]) == (450, b"4.7.1 rate_limit_exceeded: ")


# -- features by header ------------------------------------------------------------------------------------


def test_headers_set_message_options(post: SubmissionClient) -> None:
    id_ = post.send(
        mail(
            X_Heliograph_Tag="flow:signup, plan:pro",
            X_PM_Tag="welcome: all",
            X_Heliograph_Metadata_Order="47",
            X_PM_Metadata_color="blue",
            X_Metadata='{"nested": [1]}',
            X_Heliograph_Send_At="2026-01-01T00:00:00Z",
            X_Heliograph_Expires_At="2096-01-01T00:00:00Z",
            X_Heliograph_Priority="bulk",
            X_PM_Message_Stream="outbound",
        )
    )
    sent = post.sent(id_)
    assert sent["tags"] == {"flow": "signup", "plan": "pro", "tag": "welcome: all"}
    assert sent["metadata"] == {"Order": "47", "color": "blue", "nested": [1]}
    assert sent["expires_at"] == "2096-01-01T00:00:00.000Z"
    assert sent["priority"] == "bulk"
    assert sent["scheduled_at"] == "2026-01-01T00:00:00.000Z"
    received = post.received_mail(id_, "ada@example.com")
    assert not [name for name in received if name.lower().startswith("x-")]


def test_header_selects_a_template(post: SubmissionClient) -> None:
    id_ = post.send(mail(X_Heliograph_Template="tpl_welcome", X_Heliograph_Variables=json.dumps({"name": "Jürgen"})))
    assert post.sent(id_)["subject"] == "Welcome, Jürgen"
    body = post.received_mail(id_, "ada@example.com").get_body(("plain",))
    assert body and "Hi Jürgen" in body.get_content()


@pytest.mark.parametrize("header", ["Idempotency_Key", "Resend_Idempotency_Key"])
def test_an_idempotency_key_compares_the_mail_not_its_bytes(post: SubmissionClient, header: str) -> None:
    key = {header: f"key of {header}"}
    first = post.send(mail(Date="Mon, 16 Nov 2026 08:00:00 +0000", Message_ID="<1@x>", **key))
    second_id = post.send(mail(Date="Mon, 16 Nov 2026 08:00:01 +0000", Message_ID="<2@x>", **key))
    assert second_id == first
    assert refused(post, mail(Subject="Another", **key)).startswith("550 5.7.1 idempotency_key_reused: ")


def test_an_idempotency_key_compares_metadata_of_all_headers(post: SubmissionClient) -> None:
    headers = {"Idempotency_Key": "metadata", "X_Metadata": '{"a": 1}'}
    first = post.send(mail(X_PM_Metadata_b="1", **headers))
    assert post.send(mail(X_PM_Metadata_b="1", **headers | {"X_Metadata": '{ "a":1 }'})) == first
    assert refused(post, mail(X_PM_Metadata_b="2", **headers)).startswith("550 5.7.1 idempotency_key_reused: ")


def test_one_message_for_each_message_id_on_request(post: SubmissionClient) -> None:
    message = mail(Message_ID="<once@app>")
    assert post.send(message) != post.send(message)
    asking = "heliograph+message-id"
    first = post.send(message, user=asking)
    assert post.send(message, user=asking) == first
    assert post.send(message, ["other@example.com"], user=asking) != first  # a relay's second submission
    another = mail(Subject="Another", Message_ID="<once@app>")
    assert refused(post, another, user=asking).startswith("550 5.7.1 idempotency_key_reused: ")


# -- the rest of the API around it -------------------------------------------------------------------------


def test_non_ascii_addresses_are_handled(post: SubmissionClient) -> None:
    id_ = post.send(mail(To="jürgen@example.com"), ["jürgen@example.com"])
    assert post.sent(id_)["to"] == "jürgen@example.com"
    with post.client() as client:
        client.ehlo_or_helo_if_needed()
        client.mail("a@acme.test")
        client.putcmd("RCPT", "TO:<x@example.com>")
        assert client.getreply()[0] == 250


def test_an_untrusted_client_gets_no_tls(post: SubmissionClient) -> None:
    with pytest.raises(ssl.SSLError), smtplib.SMTP(HOST, post.port, timeout=PATIENCE_S) as client:
        client.starttls(context=ssl.create_default_context())
    assert post.send(mail())


def test_key_limited_to_other_networks_is_refused(post: SubmissionClient) -> None:
    key = post.service.post("/v1/keys", {"name": "elsewhere", "networks": ["192.0.2.0/24"]}).json
    assert refused(post, mail(), key=key["token"]).startswith("550 5.7.1 insufficient_scope: ")


def test_key_revoked_during_a_session_is_refused(post: SubmissionClient) -> None:
    key = post.service.post("/v1/keys", {"name": "short"}).json
    with post.client(key["token"]) as client:
        client.ehlo_or_helo_if_needed()
        assert deliver(client, mail())[0] == 250
        assert post.service.ask("DELETE", f"/v1/keys/{key['id']}").status < 300
        code, reply = deliver(client, mail())
        assert (code, reply[:22]) == (535, b"5.7.8 invalid_api_key:")


def test_auth_without_tls_is_offered_on_loopback_only() -> None:
    """To a client on another machine, AUTH is offered only after STARTTLS."""
    wire = UnauthenticatedClient()
    terms = SmtpServerSettings(host_name="x", limits=LIMITS, get_tls_context=lambda: None, too_large_reply="")
    session = SubmissionSession(terms, None, None, wire)  # type: ignore[arg-type]
    session._ehlo("EHLO", "x")
    assert not [line for line in wire.replies if b"AUTH" in line]
    session._mail_from("FROM:<a@acme.test>")
    assert wire.replies[-1] == b"530 5.7.0 Send STARTTLS first"


def test_long_reply_contains_the_message_id(post: SubmissionClient) -> None:
    to = [f"{'a' * 50}{number}@{'b' * 30}.{'c' * 30}.example.com" for number in range(50)]
    assert post.send(mail(To=", ".join(to))).startswith("eml_")
