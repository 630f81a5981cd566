"""Every parser and matcher of untrusted input takes time proportional to the input's size (P21).

Four times the input may take at most eight times the CPU time of this thread; a quadratic parser takes sixteen times.
Only ratios are compared, so the machine may be slow or busy.
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


class Shape(msgspec.Struct, frozen=True):
    head: str = ""
    again: str = ""
    tail: str = ""

    def of(self, size: int) -> str:
        return self.head + self.again * (size // len(self.again)) + self.tail


def seconds(read: Read, sample: str) -> float:
    """Return the CPU seconds that this thread needs to parse a sample."""
    gc.disable()
    try:
        began = time.thread_time()
        with suppress(
            Refusal,
            ValueError,
            RecursionError,
            suppression_file.UnreadableFile,
            setup_file.SetupError,
            pdu.MalformedPdu,
        ):
            read(sample)
        return time.thread_time() - began
    finally:
        gc.enable()


def growth(read: Read, shape: Shape) -> str:
    """Return how the parser's time grows too fast, as text; empty if it does not.

    It must occur twice in a row, because once may be due to the size of the processor's caches.
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
    return lambda sample: read(sample.encode())


def request(sample: str, header: bytes = b"", query: str = "") -> Request:
    return Request("GET", "/", [(header, sample.encode())], query_string=query.encode())


ROUTER = Router(ROUTES)
SOMEBODY = [address.Address("a@b.test", "a@b.test", "b.test")]
PROXIES = (ip_network("127.0.0.0/8"),)
VISIBLE = dict.fromkeys(range(32))
TEMPLATE = Template(id="tpl_x", team="team_x", channel="email", name="x", subject="s", variables=("name",))


def template_with(**parts: str) -> Template:
    return msgspec.structs.replace(TEMPLATE, **parts)


def past_limit(read: Read) -> Read:
    """Return a function that skips the check of an address's length, so that the code behind it is tested."""

    def past(sample: str) -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(webhook_url, "URL_MAX", len(sample))
            return read(sample)

    return past


def rendered(sample: str) -> object:
    part = "{{customer.name}}"
    source = template_with(html=f"<p>{part}</p><a href='{part}'>", text=part)
    return render.render(source, values.Values({"name": sample}), {})


def compiled(sample: str) -> object:
    return source.compile_source.__wrapped__(sample, True), source.compile_source.__wrapped__(sample, False)


def mail_of(sample: str) -> mail_parts.ReceivedMail:
    return mail_parts.ReceivedMail(fields={}, parts=[mail_parts.Part(type="text/plain", fields={}, text=sample)])


def built(sample: str) -> object:
    mail = content.EmailContent(
        from_name=sample[:200].translate(VISIBLE) or "x",
        from_address="a@b.test",
        to=["c@d.test"],
        subject=sample.translate(VISIBLE),
        html=sample,
        text=sample,
        attachments=[
            content.File(filename=sample.translate(VISIBLE) or "x", content_type="text/csv", size=1, base64="YQ==")
        ],
    )
    return mime.build_message(mail, message_id="eml_1", date_ms=0, entropy=bytes(8), open_blob=open)  # type: ignore[arg-type]


def in_pieces(sample: bytes) -> Iterator[bytes]:
    """Yield the sample in small pieces, as a network would."""
    return (sample[at : at + 16] for at in range(0, len(sample), 16))


def smpp_frames(sample: bytes) -> None:
    frames = pdu.PduReader()
    for piece in in_pieces(pdu.encode_pdu(5, 1, sample[: pdu.PDU_MAX - 16])):
        list(frames.feed(piece))


def short_message(sample: str) -> pdu.ShortMessage:
    someone = pdu.SmppAddress(1, 1, "1")
    tlvs = {pdu.MESSAGE_PAYLOAD: sample.encode()}
    return pdu.ShortMessage(source=someone, destination=someone, esm_class=4, tlvs=tlvs)


class Aborted(Exception):
    """Raised if the connection is aborted."""


class Transport:
    def abort(self) -> None:
        raise Aborted


def smtp_wire(sample: bytes) -> None:
    async def listen() -> None:
        spoken = wire.SmtpClientConnection()
        spoken.transport = Transport()  # type: ignore[assignment]
        with suppress(Aborted):
            for piece in in_pieces(sample):
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
    """A request handler that reads no body, so that all data stays buffered."""

    async def __call__(self, request: Request) -> Response:
        return Response(200, b"")

    def refusal_response(self, refusal: Refusal, request: Request | None = None) -> Response:
        return Response(400, b"")


def connection(sample: bytes) -> None:
    async def listen() -> None:
        heard = Connection(Connections(Edge()))  # type: ignore[arg-type]
        heard.connection_made(Socket())
        heard.data_received(sample)

    asyncio.run(listen())


RECORDS = {
    purpose: domain_records.Record(type="TXT", name="x.test", value="v=DKIM1; k=rsa; p=AAAA", purpose=purpose)
    for purpose in get_args(domain_records.Purpose)
    if purpose != "report_consent"  # published by the operator, and not checked
}


def judged(sample: str) -> None:
    for record in RECORDS.values():
        domain_records.check_record(record, [sample])
    domain_records.alignment("a.test", "a.test", "a.test", sample)


def keys_twice(sample: str) -> bytes:
    """Return JSON with as many keys as letters, the last one twice."""
    names = ",".join(f'"{number}":1' for number in range(len(sample) // 8))
    return f'{{{names},"x":1,"x":1}}'.encode()


def nested_variables(sample: str) -> object:
    value: Any = {"a": "1"}
    for piece in [sample[at : at + 1 + len(sample) // 30] for at in range(0, len(sample), 1 + len(sample) // 30)]:
        value = {piece: value, "b": "1"}
    return values.read_variables(value)


def compared(sample: str) -> object:
    lines = sample.splitlines(keepends=True)
    other = "".join(reversed(lines)) + "end"
    return template_edit.compare(template_with(text=sample), template_with(text=other))


# Parser → its function, and its own hostile inputs in addition to HOSTILE.
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
        octets(lambda sample: incremental_json.parse_in_steps(sample, bodies.parse_strict)),
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
    "json keys": (lambda sample: bodies.parse_json(keys_twice(sample)), ()),
    "json nulls": (
        lambda sample: bodies.parse_json(json.dumps({sample * 16: [0] * len(sample) + ["\0"]}).encode()),
        (),
    ),
    "json shape": (
        lambda sample: bodies.to_request({sample: 1}, EmailRequest),
        (Shape("", " - at `$", ""), Shape("", "unknown field `", ""), Shape("", "`", "")),
    ),
    "json shape inside": (
        lambda sample: bodies.to_request({"to": ["a"], "variables": {sample: 1}, "cc": sample}, EmailRequest),
        (Shape("", " - at `$", ""),),
    ),
    "fingerprint": (lambda sample: idempotency.fingerprint("/", dict.fromkeys(sample[:100], sample)), ()),
    "fingerprint in steps": (
        lambda sample: idempotency.fingerprint_in_steps(
            "/", [sample, {f"{sample[:9]}{n}": n for n in range(len(sample))}]
        ),
        (),
    ),
    "idempotency key": (octets(lambda sample: idempotency.parse_key([sample])), ()),
    "query": (
        lambda sample: request("", query=sample.encode("ascii", "ignore").decode()).query(("a",)),
        (Shape("", "a=1&", ""),),
    ),
    "loose query": (
        lambda sample: request("", query=sample).unchecked_query(),
        (Shape("", "a=1&", ""), Shape("", "%61", "")),
    ),
    "media type": (lambda sample: request(sample, b"content-type").check_media_type(), ()),
    "cookies": (lambda sample: page_request.parse_cookies(request(sample, b"cookie")), (Shape("", "a=1;", ""),)),
    "route": (
        lambda sample: ROUTER.find("GET", sample, sample.encode()),
        (Shape("/v1/emails/", "%41", ""), Shape("/v1/emails/", "/", "")),
    ),
    "form": (
        lambda sample: forms.read_form("application/x-www-form-urlencoded", sample.encode()),
        (Shape("", "a=1&", ""), Shape("a=", "%61", "")),
    ),
    "multipart form": (
        lambda sample: forms.read_form("multipart/form-data; boundary=x", sample.encode()),
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
        lambda sample: client_address.client_address("127.0.0.1", [sample.encode()], PROXIES),
        (Shape("", "127.0.0.1,", ""),),
    ),
    "address": (address.parse_address, ()),
    "local part": (address._normalize_local, ()),
    "domain": (address.normalize_domain, (Shape("", "xn--", ""), Shape("", "a.", "test"))),
    "name-addr": (
        lambda sample: address.parse_name_addr(f"{sample} <a@b.test>"),
        (Shape('"', "\\", ""), Shape('"', "\\a", '"'), Shape('"', "a", '"')),
    ),
    "From header": (
        lambda sample: sender.Sender(address=address.Address("", "", ""), name=sample, domain=None).header,
        (),
    ),
    "recipients": (
        lambda sample: recipients.parse_recipients(sample.split(","), None, None, None),
        (Shape("", "a@b.test,", ""),),
    ),
    "phone": (phone.parse_phone, (Shape("+", "1", ""),)),
    "filename": (attachments._safe_filename, ()),
    "attachment type": (
        attachments._normalize_type,
        (Shape("a/b", ";", ""), Shape("a/b", "; charset=", ""), Shape("a/b;", " ", ""), Shape("", '; charset="a', "")),
    ),
    "base64": (
        attachments._decode_strict_base64,
        (Shape("", "YWFh", ""), Shape("", "YWFh", "=")),
    ),
    "code in a mail": (
        # Codes, and far from them the keywords that announce a code.
        lambda sample: inbox_inspection.find_message_code(
            None, sample + "\n" * 100 + sample.replace("1234", "code"), sample
        ),
        (Shape("", "1234 ", ""), Shape("", "<style>", ""), Shape("", "<style></style>", ""), Shape("", "code ", "")),
    ),
    "links of a mail": (
        lambda sample: [inbox_inspection.check_link(url) for url in inbox_inspection.find_links(sample, None)],
        (
            Shape("", "<a href=", ""),
            Shape("", "<a href='", ""),
            Shape("", '<a href="x', ""),
            Shape("<a ", "href ", ""),
            Shape("<a href=", " ", ""),
            Shape("<a href='", "%7B", "'>"),
        ),
    ),
    "links of a text": (lambda sample: inbox_inspection.find_links(None, sample), (Shape("", "http://", ""),)),
    "html check": (
        mail_clients.find_unsupported_features,
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
        lambda sample: (placeholders.expand_short_forms(sample), placeholders.guess_item_fields([sample], [])),
        (
            Shape("", "{{id}}", ""),
            Shape("{{", "a.", ""),
            Shape("", "{{a.a", ""),
            Shape("{{", " ", ""),
            Shape("", "{{#each a}}", ""),
        ),
    ),
    "needle": (trigrams.parse_query, ()),
    "marked": (
        lambda sample: (gsm.split_by_alphabet(sample), gsm.non_gsm_characters(sample)),
        (Shape("", "ab€😀", ""),),
    ),
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
    "variables": (lambda sample: values.read_variables(dict.fromkeys(sample.split(","), "1")), ()),
    "variable groups": (nested_variables, ()),
    "check template": (
        lambda sample: check.check_template(template_with(text=sample, subject=sample)),
        (Shape("", "{{customer.a}}", ""), Shape("", "{{customer.b}}", ""), Shape("", "{{", "")),
    ),
    "lint template": (
        lambda sample: lint.lint(template_with(html=sample, text=sample)),
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
        lambda sample: template_edit.edit_template(TEMPLATE, {"text": sample, "variables": ["name"]}),
        (Shape("", "{{a.b}}{{b}}", ""), Shape("", "{{name}}", ""), Shape("{{", "a.", "a}}"), Shape("", "{{", "")),
    ),
    "compare templates": (
        compared,
        (Shape("", "a\n", ""), Shape("", "a\nb\n", ""), Shape("", "\n", ""), Shape("", "<p>a</p>\n<p>b</p>\n\n", "")),
    ),
    "verify text": (verify_text.check_text, ()),
    "gsm": (gsm.count_segments, (Shape("", "€", ""), Shape("", "𝄞", ""), Shape("a", "𝄞", ""))),
    "subject": (render.check_subject, ()),
    "html to text": (
        html_text.html_to_plain_text,
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
    "dkim headers": (lambda sample: dkim._parse_header(f"a: {sample}\r\n".encode()), (Shape("", "x\r\n ", ""),)),
    "dkim body": (lambda sample: dkim.hash_body(in_pieces(sample.encode())), ()),
    "wire form": (
        lambda sample: list(wire.dot_stuff(in_pieces(sample.encode()))),
        (Shape("", "\r\n.", ""), Shape("", "\r", "")),
    ),
    "winmail.dat": (
        octets(tnef.unpack_tnef),
        (Shape("\x78", "\0", ""),),
    ),
    "submitted mail": (
        octets(lambda sample: smtp_to_request.parse_submitted(sample, SOMEBODY)),
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
        octets(lambda raw: bounce_parser.parse_bounce(mail_parts.read_mail(raw), "ann@example.com")),
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
    "dsn": (lambda sample: dsn.parse_status_groups(mail_of(sample)), RETURNED),
    "feedback": (lambda sample: arf.read_feedback(mail_of(sample)), RETURNED),
    "notice": (
        lambda sample: (
            bounce_text.notice_text(sample),
            bounce_text.read_codes(sample),
            bounce_classifier.find_reason(sample),
            bounce_text.says_permanent(sample),
            bounce_text.says_still_trying(sample),
            bounce_text.says_undelivered(sample),
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
        lambda sample: (
            (reply := smtp_reply.read_reply([b"550-" + line.encode() for line in sample.split("\n")]))
            and (reply.text, reply.enhanced)
        ),
        (Shape("", "5.1.1 ", ""), Shape("", "5.1.1\n", "")),
    ),
    "smtp wire": (octets(smtp_wire), (Shape("", "250-a\r\n", ""), Shape("", "250 a\r\n", ""))),
    "size": (smtp_reply.read_size, ()),
    "envelope sender": (
        lambda sample: verp.parse_return_path(b"k", sample, 0),
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
    "smpp tlvs": (lambda sample: pdu.decode_short_message(bytes(18) + sample.encode()), ()),
    "smpp receipt": (
        lambda sample: receipt.parse_receipt(short_message(sample), "same"),
        (
            Shape("", "id:", ""),
            Shape("", "id:a ", ""),
            Shape("", "stat:DELIVRD ", ""),
            Shape("", "text", ""),
            Shape("id:", " ", ""),
            Shape("id:", "9", " stat:DELIVRD"),
        ),
    ),
    "smpp decimal": (lambda sample: receipt.normalize_submit_id(sample, "hex"), ()),
    "smpp text": (
        lambda sample: text.split_into_parts(*text.encode_text(sample)),
        (Shape("", "€", ""), Shape("", "𝄞", "")),
    ),
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
        lambda sample: mta_sts.parse_policy_id([sample]),
        (
            Shape("v=STSv1;", ";", ""),
            Shape("v=STSv1;", " ", ""),
            Shape("v=STSv1;", "id=a;", "!"),
            Shape("v=STSv1;", "; id=a", "!"),
            Shape("v=STSv1;", "id=a ", ""),
        ),
    ),
    "mta-sts policy": (mta_sts.parse_policy, (Shape("", "mx: a\n", ""),)),
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
        octets(suppression_file.parse_suppression_file),
        (Shape("", "a@b.test\n", ""), Shape("", '"\n', ""), Shape('"', '""', '"'), Shape('"', "a\n", '"')),
    ),
    "csv": (lambda sample: csv_rows.encode_csv([[sample]] * 4), ()),
    "carrier json": (octets(web.decode_json), ()),
    "carrier form": (octets(web.decode_form), (Shape("", "a=1&", ""),)),
    "carrier words": (lambda sample: web.clean_text(sample, ["secret"]), ()),
    "codes in a text": (web.possible_codes, (Shape("", "1a", ""), Shape("", "a1 ", ""))),
    "carrier body": (
        lambda sample: http.fill_placeholders(sample, {"to": "1"}, str),
        (Shape("", "{{to}}", ""), Shape("{{", "a", "")),
    ),
    "erasure": (
        lambda sample: erasure.address_variants("a@b.test", "a@b.test").redact_text(sample),
        (Shape("", "a@b.test ", ""), Shape("", "a@b.test", ""), Shape("", "a@b.", "")),
    ),
    "log line": (erasure.hide_addresses, (Shape("", "a@b.test ", ""), Shape("", "+1234567 ", ""))),
}


@pytest.mark.apart
@pytest.mark.parametrize("name", PARSERS)
def test_parsers_take_linear_time(name: str) -> None:
    read, own = PARSERS[name]
    result = [growth(read, shape) for shape in (*own, *(Shape(again=again) for again in HOSTILE))]
    assert not [each for each in result if each]


def test_quadratic_parser_is_detected() -> None:
    assert growth(lambda sample: re.search("a+b", sample), Shape(again="a"))
