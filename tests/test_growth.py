"""Every parser and matcher that foreign input reaches takes time in proportion to its input (P21).

Four times the input may take eight times the CPU time of this thread at most, whatever its shape: a quadratic reader
takes sixteen. Ratios only, so the machine may be slow or busy.
"""

import asyncio
import gc
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from ipaddress import ip_network
from typing import Any, get_args

import msgspec
import pytest

from heliograph.accept.email import EmailRequest
from heliograph.api.routes import ROUTES
from heliograph.carriers import http_client as web
from heliograph.carriers.email import mime, mta_sts, wire
from heliograph.carriers.sms import http
from heliograph.carriers.sms.smpp import pdu, receipt, text
from heliograph.compat.resend import codec as resend
from heliograph.dashboard import csv_rows, page_request
from heliograph.domain import ids
from heliograph.domain.delivery import content
from heliograph.domain.mail import (
    address,
    attachments,
    dkim,
    html_text,
    inbox_inspection,
    recipients,
    sender,
    smtp_to_request,
    suppression_file,
    tnef,
    verp,
)
from heliograph.domain.network import client_address
from heliograph.domain.operations import erasure
from heliograph.domain.phones import gsm, phone
from heliograph.domain.refusals import Refusal
from heliograph.domain.search import trigrams
from heliograph.domain.sending import idempotency
from heliograph.domain.setup import domain_records, setup_file
from heliograph.domain.setup.records import Template
from heliograph.domain.verify import verify_text
from heliograph.inbound.policy import (
    arf,
    bounce_classifier,
    bounce_parser,
    bounce_text,
    dsn,
    mail_parts,
    ses_notification,
    smtp_reply,
)
from heliograph.templates.policy import check, lint, mail_clients, placeholders, render, source, template_edit, values
from heliograph.web import bodies, forms, incremental_json
from heliograph.web.connection import Connection, Connections
from heliograph.web.request import Request, Response
from heliograph.web.router import Router
from heliograph.webhooks.policy import webhook_url
from tests.proof.size import FULL

SIZES = [1 << bits for bits in (10, 12, 14, 16, 18, 20)]  # characters: each four times the one before
ENOUGH = SIZES[-2 if FULL else -3]  # what is larger is for what looks quadratic before it
GROWTH_MAX = 8.0
MEASURABLE_S = 0.010
ENOUGH_S = MEASURABLE_S  # what takes longer has shown how it grows
ROUNDS = 3

Read = Callable[[str], object]

# Repeated over the whole input, each alone and after what a parser names for itself.
HOSTILE = (
    *("a", "é", "1", " ", "\n", "<", '"', "\\", "&", ";", ":", ".", "@", "-", "=", "{"),
    *("a ", "a\n", "\n ", "a.", "a@", "=?", "<a", "{{", "%2", "a="),
)


def many_names(size: int) -> str:
    return "".join(f"{{{{customer.a{number}.id}}}}" for number in range(size // 20))


class Shape(msgspec.Struct, frozen=True):
    head: str = ""
    again: str = ""
    tail: str = ""

    def of(self, size: int) -> str:
        return self.head + self.again * (size // len(self.again)) + self.tail


def seconds(read: Read, given: str) -> float:
    """CPU of this thread."""
    gc.disable()
    try:
        began = time.thread_time()
        with suppress(
            Refusal, ValueError, RecursionError, suppression_file.Unreadable, setup_file.SetupError, pdu.Malformed
        ):
            read(given)
        return time.thread_time() - began
    finally:
        gc.enable()


def growth(read: Read, shape: Shape) -> str:
    """How its time grows too fast, in words; empty when it does not.

    Twice in a row: once can be the size at which the processor's caches are full.
    """
    steep = 0
    before = seconds(read, shape.of(SIZES[0]))
    for size in SIZES[1:]:
        taken = seconds(read, shape.of(size))
        for _ in range(ROUNDS):
            if taken < max(MEASURABLE_S, GROWTH_MAX * before):
                steep = 0
                break
            before = min(before, seconds(read, shape.of(size // 4)))
            taken = min(taken, seconds(read, shape.of(size)))
        else:
            steep += 1
        if steep == 2:
            return f"{shape}: {before * 1e3:.2f} ms for {size // 4}, {taken * 1e3:.2f} ms for {size} characters"
        if not steep and (taken > ENOUGH_S or size == ENOUGH):
            break
        before = taken
    return ""


def octets(read: Callable[[bytes], object]) -> Read:
    return lambda given: read(given.encode())


def request(given: str, header: bytes = b"", query: str = "") -> Request:
    return Request("GET", "/", [(header, given.encode())], query_string=query.encode())


ROUTER = Router(ROUTES)
SOMEBODY = [address.Address("a@b.test", "a@b.test", "b.test")]
PROXIES = (ip_network("127.0.0.0/8"),)
VISIBLE = dict.fromkeys(range(32))
TEMPLATE = Template(id="tpl_x", team="team_x", channel="email", name="x", subject="s", variables=("name",))


def template_with(**parts: str) -> Template:
    return msgspec.structs.replace(TEMPLATE, **parts)


def past_limit(read: Read) -> Read:
    """What is behind the check of an address's length, which would end it at once."""

    def past(given: str) -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(webhook_url, "URL_MAX", len(given))
            return read(given)

    return past


def rendered(given: str) -> object:
    part = "{{customer.name}}"
    source = template_with(html=f"<p>{part}</p><a href='{part}'>", text=part)
    return render.render(source, values.Values({"name": given}), {})


def compiled(given: str) -> object:
    return source.compiled.__wrapped__(given, True), source.compiled.__wrapped__(given, False)


def mail_of(given: str) -> mail_parts.ReceivedMail:
    return mail_parts.ReceivedMail(fields={}, parts=[mail_parts.Part(type="text/plain", fields={}, text=given)])


def built(given: str) -> object:
    mail = content.EmailContent(
        from_name=given[:200].translate(VISIBLE) or "x",
        from_address="a@b.test",
        to=["c@d.test"],
        subject=given.translate(VISIBLE),
        html=given,
        text=given,
        attachments=[
            content.File(filename=given.translate(VISIBLE) or "x", content_type="text/csv", size=1, base64="YQ==")
        ],
    )
    return mime.build(mail, message_id="eml_1", date_ms=0, entropy=bytes(8), open_blob=open)  # type: ignore[arg-type]


def in_pieces(given: bytes) -> Iterator[bytes]:
    """As few bytes come over a network at a time."""
    return (given[at : at + 16] for at in range(0, len(given), 16))


def smpp_frames(given: bytes) -> None:
    frames = pdu.Frames()
    for piece in in_pieces(pdu.encode(5, 1, given[: pdu.PDU_MAX - 16])):
        list(frames.feed(piece))


def short_message(given: str) -> pdu.ShortMessage:
    someone = pdu.SmppAddress(1, 1, "1")
    tlvs = {pdu.MESSAGE_PAYLOAD: given.encode()}
    return pdu.ShortMessage(source=someone, destination=someone, esm_class=4, tlvs=tlvs)


class Aborted(Exception):
    """The other side is not listened to any longer."""


class Transport:
    def abort(self) -> None:
        raise Aborted


def smtp_wire(given: bytes) -> None:
    async def listen() -> None:
        spoken = wire.Wire()
        spoken.transport = Transport()  # type: ignore[assignment]
        with suppress(Aborted):
            for piece in in_pieces(given):
                spoken.data_received(piece)

    asyncio.run(listen())


class Socket(asyncio.Transport):
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def write(self, data: Any) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class Edge:
    """Reads no body, so that all of it waits."""

    async def __call__(self, request: Request) -> Response:
        return Response(200, b"")

    def refused(self, refusal: Refusal, request: Request | None = None) -> Response:
        return Response(400, b"")


def connection(given: bytes) -> None:
    async def listen() -> None:
        heard = Connection(Connections(Edge()))  # type: ignore[arg-type]
        heard.connection_made(Socket())
        heard.data_received(given)

    asyncio.run(listen())


RECORDS = {
    purpose: domain_records.Record(type="TXT", name="x.test", value="v=DKIM1; k=rsa; p=AAAA", purpose=purpose)
    for purpose in get_args(domain_records.Purpose)
}


def judged(given: str) -> None:
    for record in RECORDS.values():
        domain_records.judge(record, [given])
    domain_records.alignment("a.test", "a.test", "a.test", given)


def keys_twice(given: str) -> bytes:
    """As many names as letters, the last one twice."""
    names = ",".join(f'"{number}":1' for number in range(len(given) // 8))
    return f'{{{names},"x":1,"x":1}}'.encode()


def nested_variables(given: str) -> object:
    value: Any = {"a": "1"}
    for piece in [given[at : at + 1 + len(given) // 30] for at in range(0, len(given), 1 + len(given) // 30)]:
        value = {piece: value, "b": "1"}
    return values.read_variables(value)


def compared(given: str) -> object:
    lines = given.splitlines(keepends=True)
    other = "".join(reversed(lines)) + "end"
    return template_edit.differences(template_with(text=given), template_with(text=other))


# What reads → how, and the shapes that are its own beside HOSTILE.
PARSERS: dict[str, tuple[Read, tuple[Shape, ...]]] = {
    "json": (
        octets(bodies.parse_json),
        (
            Shape("{", '"a":1,', '"a":1}'),
            Shape("[", "1,", "1]"),
            Shape("[", "[],", "1]"),
            Shape('["', "\\u0061", '"]'),
            Shape('["', "\\ud800", '"]'),
            Shape("", '{"a":', ""),
            Shape("[", '{"a":[1]},', "1]"),
            Shape("", "1", ""),
            Shape("1.", "1", ""),
            Shape("1e", "1", ""),
        ),
    ),
    "json in steps": (
        octets(lambda given: incremental_json.read_in_steps(given, bodies.read_strictly)),
        (
            Shape("[", "[],", "1]"),
            Shape('["', '\\" :', '"]'),
            Shape('["', "é", '"]'),
            Shape('{"', "\\u0061", '":1}'),
            Shape('["', "\\ud83d\\ude00", '"]'),
            Shape("", " ", "1"),
            Shape("", "1", ""),
        ),
    ),
    "resend's files": (
        octets(resend.parse),
        (
            Shape('{"content":[1', ",1", "]}"),
            Shape('{"content":[1', " ", "]}"),
            Shape('{"content"', " ", ":[1]}"),
            Shape("{", '"content":[', "]}"),
            Shape("[", '{"content":[1]},', "1]"),
        ),
    ),
    "json keys": (lambda given: bodies.parse_json(keys_twice(given)), ()),
    "json nulls": (lambda given: bodies.parse_json(json.dumps({given * 16: [0] * len(given) + ["\0"]}).encode()), ()),
    "json shape": (
        lambda given: bodies.to_request({given: 1}, EmailRequest),
        (Shape("", " - at `$", ""), Shape("", "unknown field `", ""), Shape("", "`", "")),
    ),
    "json shape inside": (
        lambda given: bodies.to_request({"to": ["a"], "variables": {given: 1}, "cc": given}, EmailRequest),
        (Shape("", " - at `$", ""),),
    ),
    "fingerprint": (lambda given: idempotency.fingerprint("/", dict.fromkeys(given[:100], given)), ()),
    "fingerprint in steps": (
        lambda given: idempotency.fingerprint_in_steps("/", [given, {f"{given[:9]}{n}": n for n in range(len(given))}]),
        (),
    ),
    "idempotency key": (octets(lambda given: idempotency.read_key([given])), ()),
    "query": (
        lambda given: request("", query=given.encode("ascii", "ignore").decode()).query(("a",)),
        (Shape("", "a=1&", ""),),
    ),
    "loose query": (
        lambda given: request("", query=given).loose_query(),
        (Shape("", "a=1&", ""), Shape("", "%61", "")),
    ),
    "media type": (lambda given: request(given, b"content-type").check_media_type(), ()),
    "cookies": (lambda given: page_request.read_cookies(request(given, b"cookie")), (Shape("", "a=1;", ""),)),
    "route": (
        lambda given: ROUTER.find("GET", given, given.encode()),
        (Shape("/v1/emails/", "%41", ""), Shape("/v1/emails/", "/", "")),
    ),
    "form": (
        lambda given: forms.read_form("application/x-www-form-urlencoded", given.encode()),
        (Shape("", "a=1&", ""), Shape("a=", "%61", "")),
    ),
    "multipart form": (
        lambda given: forms.read_form("multipart/form-data; boundary=x", given.encode()),
        (
            Shape("--x\r\n", "a", ""),
            Shape("", "--x\r\n", ""),
            Shape("", "--x\r\na: b\r\n\r\n\r\n", "--x--"),
            Shape("--x\r\n", "a: b\r\n", "--x--"),
            Shape("--x\r\n\r\n", "\r\n-", "--x--"),
            Shape("--x\r\n\r\n", "\r\n--", "--x--"),
            Shape("--x\r\nContent-Disposition: form-data", "; name=a", "\r\n\r\n\r\n--x--"),
        ),
    ),
    "forwarded for": (
        lambda given: client_address.client_address("127.0.0.1", [given.encode()], PROXIES),
        (Shape("", "127.0.0.1,", ""),),
    ),
    "address": (address.parse_address, ()),
    "local part": (address._normal_local, ()),
    "domain": (address.normal_domain, (Shape("", "xn--", ""), Shape("", "a.", "test"))),
    "name-addr": (
        lambda given: address.parse_name_addr(f"{given} <a@b.test>"),
        (Shape('"', "\\", ""), Shape('"', "\\a", '"'), Shape('"', "a", '"')),
    ),
    "From header": (
        lambda given: sender.Sender(address=address.Address("", "", ""), name=given, domain=None).header,
        (),
    ),
    "recipients": (
        lambda given: recipients.read_recipients(given.split(","), None, None, None),
        (Shape("", "a@b.test,", ""),),
    ),
    "phone": (phone.read_phone, (Shape("+", "1", ""),)),
    "filename": (attachments._safe_filename, ()),
    "attachment type": (
        attachments._normal_type,
        (Shape("a/b", ";", ""), Shape("a/b", "; charset=", ""), Shape("a/b;", " ", ""), Shape("", '; charset="a', "")),
    ),
    "base64": (
        attachments._decoded,
        (Shape("", "YWFh", ""), Shape("", "YWFh", "=")),
    ),
    "code in a mail": (
        # Codes, and far from them the words that announce one.
        lambda given: inbox_inspection.code_in(None, given + "\n" * 100 + given.replace("1234", "code"), given),
        (Shape("", "1234 ", ""), Shape("", "<style>", ""), Shape("", "<style></style>", ""), Shape("", "code ", "")),
    ),
    "links of a mail": (
        lambda given: [inbox_inspection.check_link(url) for url in inbox_inspection.find_links(given, None)],
        (
            Shape("", "<a href=", ""),
            Shape("", "<a href='", ""),
            Shape("", '<a href="x', ""),
            Shape("<a ", "href ", ""),
            Shape("<a href=", " ", ""),
            Shape("<a href='", "%7B", "'>"),
        ),
    ),
    "links of a text": (lambda given: inbox_inspection.find_links(None, given), (Shape("", "http://", ""),)),
    "html check": (
        mail_clients.check_html,
        (
            Shape("", "<img ", ""),
            Shape("<img ", "alt ", ""),
            Shape("", "<style>", ""),
            Shape("<style>", "background:", ""),
            Shape("<style>", ": ", ""),
            Shape("<style>:", "1", ""),
            Shape("<style>", "max-width:", ""),
            Shape("", "style='", ""),
        ),
    ),
    "short placeholders": (
        # So many of one, and as many that it can mean.
        lambda given: placeholders.complete({"text": given + many_names(len(given))}, []),
        (Shape("", "{{id}}", ""), Shape("{{", "a.", ""), Shape("", "{{a.a", ""), Shape("{{", " ", "")),
    ),
    "needle": (trigrams.read_search_text, ()),
    "marked": (lambda given: (gsm.marked(given), gsm.outside(given)), (Shape("", "ab€😀", ""),)),
    "template": (
        compiled,
        (
            Shape("", "{{customer.a}}", ""),
            Shape("", "{{customer.", ""),
            Shape("{{", " ", ""),
            Shape("{{customer.", "a.", ""),
            Shape("{{customer.", "a", ""),
            Shape("<a ", "a=b ", ">"),
            Shape("<a ", "a={{customer.a}} ", ">"),
            Shape("<a href='", "{{customer.a}}", "'>"),
            Shape("<a href='", "{{customer.a}}?", "'>"),
            Shape("<a ", 'href="{{customer.a}}" ', ">"),
            Shape("", "<title><", ""),
            Shape("", "<title>", ""),
            Shape("", "<script>", ""),
            Shape("", "<title></title>", ""),
            Shape("", "<title></", ""),
            Shape("", "<!-- --><!-- ", ""),
            Shape("", "<!-- ", ""),
            Shape("<a", "/", ""),
            Shape("<a", "/ ", "x"),
            Shape("<a ", "a", ""),
            Shape("<a ", "a ", ""),
            Shape("<a a", " ", ""),
            Shape("<a a=", " ", ""),
            Shape("<a ", 'a="', ""),
            Shape("<a ", "=", ""),
            Shape("", "<a\n", ""),
            Shape("", "<{{customer.a}}", ""),
            Shape("", "</", ""),
            Shape("", "<?", ""),
        ),
    ),
    "render": (rendered, ()),
    "variables": (lambda given: values.read_variables(dict.fromkeys(given.split(","), "1")), ()),
    "variable groups": (nested_variables, ()),
    "check template": (
        lambda given: check.check_template(template_with(text=given, subject=given)),
        (Shape("", "{{customer.a}}", ""), Shape("", "{{customer.b}}", ""), Shape("", "{{", "")),
    ),
    "lint template": (
        lambda given: lint.lint(template_with(html=given, text=given)),
        (
            Shape("", "<p>", ""),
            Shape("<div>", "<p></b>", "</div>"),
            Shape("", "</p>", ""),
            Shape("", "{{#if customer.a}}<b>{{else}}<i>{{/if}}", ""),
            Shape("", '<a href="http://a.test">', ""),
            Shape("<img ", "a=b ", ">"),
            Shape("", '<p style="display:grid">', ""),
            Shape("", "\n", "<b>"),
        ),
    ),
    "edit template": (
        lambda given: template_edit.edit_template(TEMPLATE, {"text": given, "variables": ["name"]}),
        (Shape("", "{{a.b}}{{b}}", ""), Shape("", "{{name}}", ""), Shape("{{", "a.", "a}}"), Shape("", "{{", "")),
    ),
    "compare templates": (
        compared,
        (Shape("", "a\n", ""), Shape("", "a\nb\n", ""), Shape("", "\n", ""), Shape("", "<p>a</p>\n<p>b</p>\n\n", "")),
    ),
    "verify text": (verify_text.check_text, ()),
    "gsm": (gsm.segment, (Shape("", "€", ""), Shape("", "𝄞", ""), Shape("a", "𝄞", ""))),
    "subject": (render.check_subject, ()),
    "html to text": (
        html_text.text_from_html,
        (
            Shape("<", "a", ""),
            Shape("</", "a", ""),
            Shape("<a ", "a ", ""),
            Shape("<a ", '"', ""),
            Shape("<a ", '"a" ', ""),
            Shape("<a ", "'", ""),
            Shape("<a ", "alt=x ", ">"),
            Shape("<a ", "alt ", ">"),
            Shape("<a href", " ", ">"),
            Shape("<a href=", " ", ">"),
            Shape("", "<a\t", ""),
            Shape("", "<a -", ""),
            Shape("", "<a:", ""),
            Shape("", "<script>", ""),
            Shape("", "<script ", ""),
            Shape("", "<scripta", ""),
            Shape("", "</script", ""),
            Shape("<script>", "</script", ""),
            Shape("<script>", "</script ", ""),
            Shape("<script></script", " ", ""),
            Shape("", "<script></script>", ""),
            Shape("", "<title></style>", ""),
            Shape("", "<!--x-->", ""),
            Shape("", "<!-- --", ""),
            Shape("", "<a href=https://a.test/>", ""),
            Shape("", "<a href=https://a.test/>x", ""),
            Shape("", "<a href=https://a.test/>x</a>", ""),
            Shape("<a href=https://a.test/>", "x<br>", "</a>"),
            Shape("<pre>", "<br>", "</pre>"),
            Shape("", "<br>", ""),
            Shape("<p>", " \n", ""),
            Shape("", "<p>x", ""),
            Shape("", "<li>", ""),
            Shape("", "<td></td>", ""),
            Shape("", "<img alt=' '>", ""),
            Shape("", "<?", ""),
            Shape("", "<!", ""),
            Shape("<a>", "\u200b", "x"),
            Shape("<pre>", "\u200b", "x"),
            Shape("<pre>", " ", "x"),
        ),
    ),
    "build a mail": (built, ()),
    "dkim headers": (lambda given: dkim._read(f"a: {given}\r\n".encode()), (Shape("", "x\r\n ", ""),)),
    "dkim body": (lambda given: dkim.hash_relaxed(in_pieces(given.encode())), ()),
    "wire form": (
        lambda given: list(wire.wire_form(in_pieces(given.encode()))),
        (Shape("", "\r\n.", ""), Shape("", "\r", "")),
    ),
    "winmail.dat": (
        octets(tnef.unpacked),
        (Shape("\x78", "\0", ""),),
    ),
    "submitted mail": (
        octets(lambda given: smtp_to_request.read_submitted(given, SOMEBODY)),
        (
            Shape('To: "', '\\"', "\n\nx"),
            Shape("To: ", "(", "\n\nx"),
            Shape("To: ", "<", "\n\nx"),
            Shape("To: ", "a@b.test,", "\n\nx"),
            Shape("Subject: ", "=?utf-8?q?a?=", "\n\nx"),
            Shape("Subject: ", "=?a?q?", "\n\nx"),
            Shape("X-A: a\n", " \n", "\nx"),
            Shape("", "X: y\n", "\nx"),
            Shape("X-Tags: ", "a,", "\n\nx"),
            Shape("Content-Type: text/plain", ';a="', "\n\nx"),
            Shape("Content-Type: text/plain; format=flowed\n\n", ">", ""),
            Shape("Content-Type: text/plain; format=flowed\n\n", "a \n", ""),
            Shape("Content-Transfer-Encoding: quoted-printable\n\n", "=\n", ""),
            Shape("Content-Transfer-Encoding: base64\n\n", "A\n", ""),
            Shape("Content-Type: multipart/mixed; boundary=b\n\n", "--b", ""),
            Shape("Content-Type: multipart/mixed; boundary=b\n\n", "\n--bx", ""),
            Shape("Content-Type: multipart/mixed; boundary=b\n\n", "--b\n\nx\n", ""),
            Shape(
                "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/html\n\n",
                "cid:a+",
                "".join(f"\n--b\nContent-Type: image/png\nContent-ID: <a+{number}>\n\nx" for number in range(90)),
            ),
        ),
    ),
    "returned mail": (
        octets(lambda raw: bounce_parser.read_returned(mail_parts.read_mail(raw), "ann@example.com")),
        RETURNED := (
            Shape("", "a: b\n", ""),
            Shape("a: b", "\n ", ""),
            Shape("a: b", "\n c", ""),
            Shape("Subject: ", "=?utf-8?q?a?= ", "\n\n"),
            Shape("Subject: ", "=?utf-8?q?", "\n\n"),
            Shape("Content-Type: multipart/mixed; boundary=x\n\n", "--x\n", ""),
            Shape("Content-Type: multipart/mixed; boundary=x\n\n", "--x\n\nx\n", ""),
            Shape(
                "Content-Type: multipart/mixed; boundary=x\n\n",
                "--x\nContent-Type: multipart/mixed; boundary=x\n\n",
                "",
            ),
            Shape("Content-Type: multipart/mixed; boundary=x\n\n", "--x ", ""),
            Shape("Content-Type: multipart/mixed; boundary=x\n\n--x", " ", ""),
            Shape("", "Content-Type: message/rfc822\n\n", ""),
            Shape("Content-Type: text/html\n\n", "<a", ""),
            Shape("Content-Type: a/b", ";", "\n\n"),
            Shape("Content-Type: a/b;", " ", "\n\n"),
            Shape("\n", "Final-Recipient: rfc822; a@b.test\nAction: failed\nStatus: 5.1.1\n\n", ""),
            Shape("\n", "Action: failed\n\n", ""),
            Shape("\n\n", "mailbox konto adres not over no valid por unable to ", ""),
            Shape("\n\n", " \n", ""),
            Shape("\nx", "\n\t", ""),
            Shape("\n", "feedback-type:\n", ""),
            Shape("\n", "feedback-type ", ""),
            Shape("\n", "550 5.1.1 ", ""),
            Shape("\n", "550-", ""),
            Shape("\n", "5.1.1 ", ""),
            Shape("\n", "https://a", ""),
            Shape("\n", "www.", ""),
            Shape("\n", "message message ", ""),
            Shape("\n", "mailbox ", ""),
            Shape("\n", "user unknown ", ""),
            Shape("\n", "not not ", ""),
            Shape("\n", "delivery delivery ", ""),
            Shape("\n", "subject", ""),
            Shape("\n", "subject:\n", ""),
            Shape("\n", "original message ", ""),
            Shape("\n", "---", ""),
            Shape("\n", "> ", ""),
            Shape("\n", "Received:\n", ""),
            Shape("\n", "content-type:\n", ""),
            Shape('\n"notificationType"', "{", ""),
            Shape('\n"notificationType"{', '"a":{', ""),
        ),
    ),
    "dsn": (lambda given: dsn.read_status(mail_of(given)), RETURNED),
    "feedback": (lambda given: arf.read_feedback(mail_of(given)), RETURNED),
    "notice": (
        lambda given: (
            bounce_text.own_words(given),
            bounce_text.read_codes(given),
            bounce_classifier.read_reason(given),
            bounce_text.says_final(given),
            bounce_text.says_still_trying(given),
            bounce_text.says_returned(given),
        ),
        RETURNED,
    ),
    "ses": (
        ses_notification.read_notification,
        (
            Shape('{"notificationType":"', "a", '"}'),
            Shape('"notificationType"', "{", ""),
        ),
    ),
    "smtp reply": (
        lambda given: (
            (reply := smtp_reply.read_reply([b"550-" + line.encode() for line in given.split("\n")]))
            and (reply.text, reply.enhanced)
        ),
        (Shape("", "5.1.1 ", ""), Shape("", "5.1.1\n", "")),
    ),
    "smtp wire": (octets(smtp_wire), (Shape("", "250-a\r\n", ""), Shape("", "250 a\r\n", ""))),
    "size": (smtp_reply.read_size, ()),
    "envelope sender": (
        lambda given: verp.read(b"k", given, 0),
        (Shape("b", "a", ""), Shape("b" + "0" * 58 + "@", "a", "")),
    ),
    "connection": (
        octets(connection),
        (
            Shape("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\na\r\n", ""),
            Shape("", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", ""),
            Shape("GET / HTTP/1.1\r\nHost: x\r\n", "a: b\r\n", "\r\n"),
            Shape("GET /", "a", " HTTP/1.1\r\nHost: x\r\n\r\n"),
            Shape("GET / HTTP/1.1\r\nHost: x\r\na: ", "b", "\r\n\r\n"),
        ),
    ),
    "smpp frames": (octets(smpp_frames), ()),
    "smpp message": (octets(pdu.decode_short_message), (Shape("", "\1", "\0" * 30),)),
    "smpp tlvs": (lambda given: pdu.decode_short_message(bytes(18) + given.encode()), ()),
    "smpp receipt": (
        lambda given: receipt.read_receipt(short_message(given), "same"),
        (
            Shape("", "id:", ""),
            Shape("", "id:a ", ""),
            Shape("", "stat:DELIVRD ", ""),
            Shape("", "text", ""),
            Shape("id:", " ", ""),
            Shape("id:", "9", " stat:DELIVRD"),
        ),
    ),
    "smpp decimal": (lambda given: receipt.issued_id(given, "hex"), ()),
    "smpp text": (lambda given: text.cut(*text.to_octets(given)), (Shape("", "€", ""), Shape("", "𝄞", ""))),
    "dns records": (
        judged,
        (
            Shape("v=DMARC1", ";", ""),
            Shape("v=DMARC1;", " ", ""),
            Shape("", "v = DMARC1 ", ""),
            Shape("v=DMARC1; p=none; rua=", "a:b ", ""),
            Shape("v=DMARC1; p=none; rua=mailto:a", " ", "!"),
            Shape("v=DMARC1; p=none; rua=a:b", ",a:b", "!"),
            Shape("v=spf1 ", "a ", ""),
            Shape("v=spf1 ", "ip4:", ""),
            Shape("v=DKIM1; ", "k=rsa; ", ""),
            Shape("v=DKIM1; p=", "A ", ""),
        ),
    ),
    "mta-sts record": (
        lambda given: mta_sts.read_id([given]),
        (
            Shape("v=STSv1;", ";", ""),
            Shape("v=STSv1;", " ", ""),
            Shape("v=STSv1;", "id=a;", "!"),
            Shape("v=STSv1;", "; id=a", "!"),
            Shape("v=STSv1;", "id=a ", ""),
        ),
    ),
    "mta-sts policy": (mta_sts.read_policy, (Shape("", "mx: a\n", ""),)),
    "webhook address": (
        past_limit(webhook_url.parse_target.__wrapped__),
        (
            Shape("https://", "a", ""),
            Shape("https://", "a.", ""),
            Shape("https://a/", "%41", ""),
            Shape("https://a/", "%", ""),
            Shape("https://[", "1:", "]"),
            Shape("https://a:", "1", ""),
            Shape("https://", "1.", "1"),
        ),
    ),
    "webhook login": (
        past_limit(webhook_url.split_login),
        (
            Shape("https://", "a:", "@a"),
            Shape("https://", "%41", "@a"),
            Shape("https://", "a", ""),
            Shape("", "a@", ""),
        ),
    ),
    "time": (ids.parse_timestamp, ()),
    "suppression file": (
        octets(suppression_file.read_lines),
        (Shape("", "a@b.test\n", ""), Shape("", '"\n', ""), Shape('"', '""', '"'), Shape('"', "a\n", '"')),
    ),
    "csv": (lambda given: csv_rows.csv_lines([[given]] * 4), ()),
    "carrier json": (octets(web.read_json), ()),
    "carrier form": (octets(web.read_form), (Shape("", "a=1&", ""),)),
    "carrier words": (lambda given: web.said(given, ["secret"]), ()),
    "codes in a text": (web.codes_in, (Shape("", "1a", ""), Shape("", "a1 ", ""))),
    "carrier body": (lambda given: http.fill(given, {"to": "1"}, str), (Shape("", "{{to}}", ""), Shape("{{", "a", ""))),
    "erasure": (
        lambda given: erasure.forms_of("a@b.test", "a@b.test").scrub(given),
        (Shape("", "a@b.test ", ""), Shape("", "a@b.test", ""), Shape("", "a@b.", "")),
    ),
    "log line": (erasure.hide_addresses, (Shape("", "a@b.test ", ""), Shape("", "+1234567 ", ""))),
}


@pytest.mark.apart
@pytest.mark.parametrize("name", PARSERS)
def test_time_grows_with_the_input(name: str) -> None:
    read, own = PARSERS[name]
    found = [growth(read, shape) for shape in (*own, *(Shape(again=again) for again in HOSTILE))]
    assert not [each for each in found if each]


def test_a_quadratic_reader_is_found() -> None:
    assert growth(lambda given: re.search("a+b", given), Shape(again="a"))
