"""MIME output: golden files, hostile headers and bodies (parsed by the standard library), and streaming."""

import hashlib
import io
import itertools
import quopri
import random
import re
import tracemalloc
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.header import decode_header, make_header
from email.message import EmailMessage, Message
from email.utils import parseaddr
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
import pybase64
import pytest
from msgspec.structs import replace

from heliograph.carriers.contract import NotReady
from heliograph.carriers.email import mime
from heliograph.carriers.email.mime import CHUNK_SIZE, MimeMessage, StoredAttachment, build_message, check_headers
from heliograph.domain.delivery.content import EmailContent, File
from heliograph.domain.limits import ATTACHMENT_MAX, MIB
from heliograph.domain.mail.html_text import html_to_plain_text

GOLDEN = Path(__file__).parent / "golden"
DATE_MS = 1_794_735_000_000  # 2026-11-15T09:30:00Z
TOP = ["From", "To", "Subject", "Date", "Message-ID", "MIME-Version", "Content-Type", "Content-Transfer-Encoding"]
BARE_LINE_END = re.compile(rb"\r(?!\n)|(?<!\r)\n")


def no_blob(blob: str) -> BinaryIO:
    raise AssertionError(f"{blob} was opened")


def content(**fields: Any) -> EmailContent:
    values = {"from_name": "Acme", "from_address": "hi@acme.test", "to": ["ann@example.com"], "subject": "Hello"}
    return EmailContent(**values | ({} if "html" in fields else {"text": "Hi"}) | fields)


def make_mail(content: EmailContent, message_id: str = "eml_1") -> MimeMessage:
    return build_message(content, message_id=message_id, date_ms=DATE_MS, entropy=bytes(range(12)), open_blob=no_blob)


def wire(mail: MimeMessage) -> bytes:
    return b"".join(mail.chunks())


def judged(mail: MimeMessage) -> EmailMessage:
    """Parse the mail with the standard library's newer parser, which must report no defect."""
    message = message_from_bytes(wire(mail), policy=policy.default)
    for part in message.walk():
        assert not part.defects
        assert all(not field.defects for field in part.values())
    return message


def parse_mail(mail: MimeMessage) -> Message:
    """Parse the mail with the standard library's older, faster parser."""
    message = message_from_bytes(wire(mail), policy=policy.compat32)
    assert not [part for part in message.walk() if part.defects]
    return message


def decoded(value: str) -> str:
    return str(make_header(decode_header(value.replace("\r\n ", " "))))


def name_of(message: Message) -> str:
    """Return the display name; the newer parser puts spaces between encoded words."""
    phrase = message["From"].rpartition("<")[0].strip()
    return decoded(phrase) if phrase.startswith("=") else parseaddr(message["From"])[0]


def parts_of(message: Message) -> list[Message]:
    return [part for part in message.walk() if not part.is_multipart()]


def payload(part: Message) -> bytes:
    decoded = part.get_payload(decode=True)
    assert isinstance(decoded, bytes)
    return decoded


def small(filename: str = "a.txt", content_type: str = "text/plain", body: bytes = b"file") -> File:
    return File(filename=filename, content_type=content_type, size=len(body), base64=pybase64.b64encode(body).decode())


# -- golden files: content as JSON, mail as .eml -----------------------------------------------------------


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def test_content_gives_the_golden_mail(path: Path) -> None:
    content = msgspec.json.decode(path.read_bytes(), type=EmailContent)
    assert wire(make_mail(content, f"eml_{path.stem}")) == path.with_suffix(".eml").read_bytes()


def test_same_content_gives_the_same_bytes() -> None:
    parsed_content = content(html="<p>Hi</p>", attachments=[small()])
    assert wire(make_mail(parsed_content)) == wire(make_mail(parsed_content))


# -- headers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("Acme", b'From: "Acme" <hi@acme.test>'),
        ('A "B" \\ C', rb'From: "A \"B\" \\ C" <hi@acme.test>'),
        ("Acme, Inc.; (x) <y@z>:", b'From: "Acme, Inc.; (x) <y@z>:" <hi@acme.test>'),
        ("Zürich", b"From: =?utf-8?B?WsO8cmljaA==?= <hi@acme.test>"),
        ("Bäckerei am Markt", b"From: =?utf-8?Q?B=C3=A4ckerei_am_Markt?= <hi@acme.test>"),
        ("=?utf-8?Q?x?=", b"From: =?utf-8?B?PT91dGYtOD9RP3g/PQ==?= <hi@acme.test>"),
        ("A" * 200, b'From: "' + b"A" * 200 + b'"'),
        ("", b"From: <hi@acme.test>"),  # an email of a team with `catch`, which takes any sender
    ],
)
def test_display_name_is_encoded_and_read_back(name: str, line: bytes) -> None:
    mail = make_mail(content(from_name=name))
    assert mail.headers.split(b"\r\n")[0] == line
    assert name_of(parse_mail(mail)) == name


@pytest.mark.parametrize(
    "subject",
    [
        "Your order",
        "",
        " leading and trailing ",
        "two  spaces",
        "word " * 39 + "end",
        "x" * 1000,
        "Reset your password, Zoë: https://acme.test/" + "a" * 100,
        'Zoë, _your_ order? (=1) is "ready" ' + "and more " * 15,
        "Grüße aus Zürich",
        "注文" * 100,
        "😀" * 200,
        "a" * 38 + "é" * 60,
        "=?utf-8?B?SGk=?=",
        "mixed =?",
        "e\u0301" * 100,
        "RTL \u200f mark",
    ],
)
def test_subject_is_read_back_unchanged_from_short_lines(subject: str) -> None:
    mail = make_mail(content(subject=subject))
    assert judged(mail)["subject"] == subject
    assert max(map(len, mail.headers.split(b"\r\n"))) <= 76
    for encoded_word in re.findall(rb"=\?.*?\?=", mail.headers):
        assert len(encoded_word) <= 75
        str(make_header(decode_header(encoded_word.decode())))  # raises an error unless each word has whole characters


@pytest.mark.parametrize(
    ("subject", "lines"),
    [
        ("two  spaces", ["Subject: two  spaces"]),
        ("x" * 200, ["Subject: " + "x" * 200]),
        ("word  " * 10 + "word " * 8 + "end", ["Subject: " + "word  " * 10 + "word", " " + "word " * 7 + "end"]),
        ("a " + "y" * 70 + " b", ["Subject: a", " " + "y" * 70 + " b"]),
    ],
)
def test_ascii_header_is_not_encoded(subject: str, lines: list[str]) -> None:
    mail = make_mail(content(subject=subject))
    assert judged(mail)["subject"] == subject
    start = mail.headers.index(b"Subject: ")
    assert mail.headers[start : mail.headers.index(b"\r\nDate:")].decode().split("\r\n") == lines


def test_address_is_written_as_expected() -> None:
    to = [f"person-number-{i}@department.example.com" for i in range(50)]
    mail = make_mail(content(to=to, cc=["Ann@Example.COM", "x@bücher.example"], reply_to="r@straße.example"))
    assert b"Cc: Ann@Example.COM, x@xn--bcher-kva.example\r\n" in mail.headers
    assert b"Reply-To: r@xn--strae-oqa.example\r\n" in mail.headers
    assert not mail.needs_utf8
    assert max(map(len, mail.headers.split(b"\r\n"))) <= 76
    assert [address.addr_spec for address in judged(mail)["to"].addresses] == to
    assert judged(mail).keys() == ["From", "To", "Cc", "Reply-To", *TOP[2:]]


def test_longest_address_fits_on_a_line() -> None:
    longest = "l" * 64 + "@" + ".".join(["d" * 61] * 4)
    mail = make_mail(content(to=[longest] * 3, from_address=longest))
    assert [address.addr_spec for address in judged(mail)["to"].addresses] == [longest] * 3


@pytest.mark.parametrize("field", ["from_address", "to", "cc", "reply_to"])
def test_non_ascii_local_part_requires_smtputf8(field: str) -> None:
    value = "jörg@bücher.example"
    mail = make_mail(content(**{field: [value] if field in ("to", "cc") else value}))
    assert mail.needs_utf8
    assert "jörg@xn--bcher-kva.example".encode() in mail.headers


def test_mail_has_date_and_message_id() -> None:
    mail = make_mail(content(from_address="hi@BÜCHER.example".replace("Ü", "ü")), "eml_01JCQ8Z6V3M2N7T0K4H9R5B1XA")
    assert b"\r\nDate: Sun, 15 Nov 2026 09:30:00 +0000\r\n" in mail.headers
    assert b"\r\nMessage-ID: <eml_01JCQ8Z6V3M2N7T0K4H9R5B1XA@xn--bcher-kva.example>\r\n" in mail.headers


@pytest.mark.parametrize(
    "fields",
    [
        {"subject": "a\nb"},
        {"subject": "a\x85b"},
        {"subject": "a\u2028b"},
        {"subject": "a\x00b"},
        {"subject": "a\ud800b"},
        {"from_name": "a\rb"},
        {"from_name": " "},
        {"from_address": "a@b@c.test"},
        {"from_address": "hi@acme.test\r\n"},
        {"to": ["a@b.test, c@d.test"]},
        {"cc": ["a@b.test>"]},
        {"to": ["Ann\x00 <a@b.test>"]},
        {"reply_to": "Ann a@b.test"},
        {"text": None},
        {"text": "a\ud800b"},
        {"attachments": [small(filename="a\nb")]},
        {"attachments": [small(filename="a\u2029b")]},
        {"attachments": [small(content_type="message/rfc822")]},
        {"attachments": [small(content_type="text/plain; name=x")]},
        {"attachments": [small(content_type="text/plain; charset=a\r\nb")]},
        {"attachments": [File(filename="a", content_type="text/plain", size=1)]},
        {"attachments": [File(filename="a", content_type="text/plain", size=1, base64="YQ=")]},
    ],
    ids=str,
)
def test_invalid_content_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  several kinds; none is sent
        make_mail(content(**fields))


@pytest.mark.parametrize("message_id", ["", "a b", "a>", "a@b", "a\r\nb", "é", "x" * 65])
def test_invalid_message_id_is_refused(message_id: str) -> None:
    with pytest.raises(ValueError, match="Message-ID"):
        make_mail(content(), message_id)


@pytest.mark.parametrize(
    "block",
    [
        b"A: 1\r\nB: 2\r\nC: 3\r\n",
        b"A: 1\r\n",
        b"A: 1\r\nA: 2\r\nB: 2\r\n",
        b"A: 1\r\nb: 2\r\n",
        b"A: 1\r\nB: 2",
        b"A: 1\nB: 2\r\n",
        b"A: 1\rB: 2\r\n",
        b"A: 1\r\n\r\nB: 2\r\n",
        b"A: 1\r\nB: 2\r\n\r\n",
        b"A: 1\r\n \r\nB: 2\r\n",
        b" A: 1\r\nA: 1\r\nB: 2\r\n",
        b"A: 1\r\nB : 2\r\n",
        b"A: 1\r\nB\r\n",
        b"A: \0\r\nB: 2\r\n",
        b"A: \t\r\nB: 2\r\n",
        b"A: \x7f\r\nB: 2\r\n",
        b"A: " + b"x" * 996 + b"\r\nB: 2\r\n",
        b"",
    ],
    ids=repr,
)
def test_header_check_refuses_unsafe_headers(block: bytes) -> None:
    with pytest.raises(ValueError, match="header block"):
        check_headers(block, ["A", "B"])


def test_header_check_allows_safe_headers() -> None:
    check_headers(b"A: 1\r\n 2\r\nB: \xc3\xa9\r\nB:\r\nC: " + b"x" * 995 + b"\r\n", ["B", "A", "B", "C"])


# -- header injection --------------------------------------------------------------------------------------

BREAKS = [
    *["\r\n", "\n", "\r", "\r\n\r\n", "\n\n", "\r\n ", "\n\t", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x00", "\x7f"],
    *["\x85", "\u2028", "\u2029", "\x9f", "\ud800", "\\\r\n", '"\r\n', "=?utf-8?Q?=0D=0A?=", "=?utf-8?B?DQo=?="],
    *["=?utf-8?Q?", "?=", "%0d%0a", "\\r\\n", "&#13;&#10;", "\u560a\u560d", "\u010a\u010d", '"', '\\"', "\\", ">", "<"],
    *[",", ";", ":", "(", "''", "\u202e", "=0D=0A", "\r\n--=_m000102030405060708090a0b\r\n"],
]
INJECTED = [
    "Bcc: evil@example.org",
    "X-Evil: 1",
    "Subject: Other",
    "Content-Type: text/html",
    "\r\n<b>body</b>",
    ".",
    "",
]
PLACES = ["{}Hello", "Hel{}lo", "Hello{}", "Grüße {} " + "x" * 70]
HEADER_BOUND = ["subject", "from_name", "filename", "content_type", "reply_to", "to", "from_address", "message_id"]
MUST_REFUSE = re.compile("[\r\n\x00\x0b\x0c\x1c-\x1e\x7f\x85\x9f\u2028\u2029\ud800]")


def hostile(field: str, value: str) -> MimeMessage:
    file = msgspec.structs.replace(small(), **{field: value}) if field in File.__struct_fields__ else small()
    extra_fields = {field: [value] if field == "to" else value} if field in EmailContent.__struct_fields__ else {}
    return make_mail(content(attachments=[file], **extra_fields), value if field == "message_id" else "eml_1")


def test_header_injection_is_refused() -> None:
    tried = sent = 0
    for mark, injected, position, field in itertools.product(BREAKS, INJECTED, PLACES, HEADER_BOUND):
        value = position.format(mark + injected)
        tried += 1
        try:
            mail = hostile(field, value)
        except ValueError:
            continue
        sent += 1
        assert not MUST_REFUSE.search(value), (field, value)
        message = parse_mail(mail)
        text, file = parts_of(message)
        expected = [*TOP[:2], *(["Reply-To"] if field == "reply_to" else []), *TOP[2:-1]]
        assert message.keys() == expected, (field, value)
        assert text.keys() == TOP[-2:], (field, value)
        assert file.keys() == [*TOP[-2:], "Content-Disposition"], (field, value)
        assert payload(text) == b"Hi", (field, value)
        back = {"subject": decoded(message["Subject"]), "from_name": name_of(message), "filename": file.get_filename()}
        if field in back:
            assert back[field] == value
    assert tried >= 5000
    assert sent >= 1000  # the parser had enough to read


# -- bodies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        ({"text": "Hi"}, "text/plain"),
        ({"html": "<p>Hi</p>"}, "multipart/alternative(text/plain text/html)"),
        ({"html": "<p>Hi</p>", "text": "Hello"}, "multipart/alternative(text/plain text/html)"),
        ({"html": "<img src=x>"}, "text/html"),
        ({"text": "Hi", "attachments": [small()]}, "multipart/mixed(text/plain text/plain)"),
        (
            {"html": "<p>Hi</p>", "attachments": [small(), small(content_type="image/png")]},
            "multipart/mixed(multipart/alternative(text/plain text/html) text/plain image/png)",
        ),
    ],
)
def test_mail_parts_have_the_expected_structure(fields: dict[str, Any], shape: str) -> None:
    def shape_of(part: EmailMessage) -> str:
        inner = " ".join(shape_of(cast(EmailMessage, child)) for child in part.iter_parts())
        return part.get_content_type() + (f"({inner})" if inner else "")

    assert shape_of(judged(make_mail(content(**fields)))) == shape


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Plain ASCII", "quoted-printable"),
        ("=" * 500, "quoted-printable"),
        ("Une commande a été expédiée à votre adresse", "quoted-printable"),
        ("Доставка", "base64"),
        ("ご注文ありがとうございます", "base64"),
    ],
)
def test_transfer_encoding_follows_the_text(text: str, encoding: str) -> None:
    assert judged(make_mail(content(text=text)))["content-transfer-encoding"] == encoding


FRAGMENTS = [
    *[
        ".",
        "..",
        ".\r\n",
        "\r\n.\r\n",
        "\n.\n",
        "\r.\r",
        "\n.\r\n",
        "\r\n.\n",
        "\r\n..\r\n",
        "." * 200,
        "\n" + "." * 75,
    ],
    *[
        "From me",
        "\nFrom you ",
        ">From ",
        "\r",
        "\n",
        "\r\n",
        "\n\r",
        "\r\r\n",
        "\n\n\n",
        "\x0b",
        "\x0c",
        "\x1b[31m",
        "\x7f",
    ],
    *[
        "\x01\x02\x08",
        "\x85",
        "\u2028",
        "\u2029",
        "é",
        "日本語",
        "😀",
        "\ufeff",
        "=",
        "==",
        "=\r\n",
        "=3D",
        "=0D=0A.=0D=0A",
    ],
    *[
        "x" * 75,
        "x" * 76,
        "x" * 77,
        "x" * 5000,
        "x" * 73 + " ",
        "x" * 75 + "\t\n",
        " ",
        "\t",
        "   \n",
        " \r\n.",
        "=" * 80,
    ],
    *["é" * 400, "--=_a000102030405060708090a0b", "\n--=_m000102030405060708090a0b--\n", "Content-Type: text/html\n\n"],
    *["QUIT\r\n", "\r\n.\r\nMAIL FROM:<a@b.test>\r\n", "DATA\n", "begin 644 x\n", "=?utf-8?B?DQo=?="],
]


def hostile_bodies() -> Iterator[str]:
    yield from FRAGMENTS
    rolls = random.Random(3)
    while True:
        yield "".join(rolls.choices(FRAGMENTS, k=rolls.randint(2, 12)))


def with_line_ends(text: str) -> bytes:
    """Return the text with CRLF line ends, without the last one, which is not part of the text."""
    return re.sub("\r\n|\r|\n", "\n", text).removesuffix("\n").replace("\n", "\r\n").encode()


def test_hostile_body_gives_valid_lines() -> None:
    for number, body in enumerate(itertools.islice(hostile_bodies(), 300)):
        attachments = [small(body=body.encode())] * (number % 2)
        for fields in ({"text": body}, {"text": body, "html": body}, {"html": f"<p>x</p>{body}"}):
            mail = make_mail(content(attachments=attachments, **fields))
            sent = wire(mail)
            assert not BARE_LINE_END.search(sent)
            assert sent.isascii() and sent.endswith(b"\r\n") and b"\0" not in sent
            lines = sent.split(b"\r\n\r\n", 1)[1].split(b"\r\n")
            assert max(map(len, lines)) <= 76
            assert not [line for line in lines if line.startswith((b".", b"From ")) or line.endswith((b" ", b"\t"))]
            message = parse_mail(mail)
            parts = parts_of(message)
            if attachments:
                assert payload(parts.pop()) == body.encode()
            assert len(parts) == (1 if "html" not in fields else 2)
            for kind, text in fields.items():
                expected = with_line_ends(text)
                decoded = payload(parts[0 if kind == "text" else 1])
                # If the mail has one part, its last line end counts as part of the text.
                assert decoded == expected or (not message.is_multipart() and decoded == expected + b"\r\n"), text


# -- attachments -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "filename",
    [
        "a.pdf",
        "two words.pdf",
        "Grüße.pdf",
        "請求書.pdf",
        "😀" * 60 + ".pdf",
        "x" * 255,
        'a"b\\c.pdf',
        "a'b*c%20.pdf",
        "=?x?=",
    ],
)
def test_file_name_is_read_back_unchanged(filename: str) -> None:
    mail = make_mail(content(attachments=[small(filename=filename, content_type="application/pdf")]))
    (file,) = judged(mail).iter_attachments()
    assert file.get_filename() == filename
    assert file["content-type"].params["name"] == filename
    assert file.get_content_disposition() == "attachment"
    assert b"=?" not in wire(mail)  # some readers decode words even here
    assert max(map(len, wire(mail).split(b"\r\n"))) <= 76


@pytest.mark.parametrize("html", [None, "<p>Come</p>"])
def test_calendar_invitation_is_an_alternative_part(html: str | None) -> None:
    body = b"BEGIN:VCALENDAR\r\nMETHOD:REQUEST\r\nEND:VCALENDAR\r\n"
    kind = "text/calendar; charset=utf-8; method=REQUEST"
    invitation = replace(small(content_type=kind, body=body), alternative=True)
    built = make_mail(content(text="Come", html=html, attachments=[invitation, small()]))
    mail = judged(built)
    body_part, file = mail.iter_parts()
    kinds = [part.get_content_type() for part in body_part.iter_parts()]
    assert body_part.get_content_type() == "multipart/alternative"
    assert kinds == ["text/plain", *(["text/html"] if html else []), "text/calendar"]
    calendar = list(body_part.iter_parts())[-1]
    assert dict(calendar["content-type"].params) == {"charset": "utf-8", "method": "REQUEST"}
    assert "content-disposition" not in calendar
    assert body in wire(built) and b"=0A" not in wire(built)
    assert file.get_content_disposition() == "attachment"


def test_attachment_content_type_parameters_are_kept() -> None:
    mail = make_mail(content(attachments=[small(content_type="text/calendar; charset=utf-8; method=REQUEST")]))
    (file,) = judged(mail).iter_attachments()
    assert dict(file["content-type"].params) == {"charset": "utf-8", "method": "REQUEST", "name": "a.txt"}


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"a,b\r\n1,2\r\n", "quoted-printable"),
        (b"a,b\n1,2\n", "quoted-printable"),
        (b"a\rb\n\rc\r\r\n", "quoted-printable"),
        (b"", "quoted-printable"),
        (b"\n\n\r\n\n", "quoted-printable"),
        (b".\r\nFrom me\n.\r\n.x", "quoted-printable"),
        (b"x = y \t\nspace at the end \r\n" + b"long=" * 5000, "quoted-printable"),
        ("name;Zürich\n".encode(), "base64"),
        (b"a\0b", "base64"),
    ],
)
def test_text_attachment_is_readable_and_read_back_unchanged(body: bytes, encoding: str) -> None:
    mail = make_mail(content(attachments=[small(content_type="text/csv", body=body)]))
    assert max(map(len, wire(mail).split(b"\r\n"))) <= 76
    assert not BARE_LINE_END.search(wire(mail))
    file = parts_of(parse_mail(mail))[-1]
    assert payload(file) == body
    assert file["content-transfer-encoding"] == encoding


@pytest.mark.parametrize("size", [0, 1, 2, 3, 56, 57, 58, 114, 200_000])
def test_small_attachment_is_read_back_unchanged(size: int) -> None:
    body = random.Random(size).randbytes(size)
    mail = make_mail(content(attachments=[small(body=body, content_type="application/zip")]))
    assert mail.size == len(wire(mail))
    (file,) = judged(mail).iter_attachments()
    assert file.get_content() == body


class Zeros(io.RawIOBase):
    """A file of any size that uses no memory."""

    def __init__(self, size: int) -> None:
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = min(self._left, len(buffer))
        buffer[:count] = bytes(count)
        self._left -= count
        return count


def blobs(*sizes: int) -> MimeMessage:
    files = [File(filename="z", content_type="application/zip", size=size, blob=str(size)) for size in sizes]
    return build_message(
        content(attachments=files),
        message_id="eml_1",
        date_ms=DATE_MS,
        entropy=bytes(12),
        open_blob=lambda blob: io.BufferedReader(Zeros(int(blob))),
    )


def test_25_mib_of_attachments_are_never_fully_in_memory() -> None:
    sizes = [ATTACHMENT_MAX, ATTACHMENT_MAX - 1, 5 * MIB + 1]
    tracemalloc.start()
    mail = blobs(*sizes)
    observed = largest = 0
    for chunk in mail.chunks():
        observed += len(chunk)
        largest = max(largest, len(chunk))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert observed == mail.size
    assert largest <= CHUNK_SIZE
    assert peak < MIB


@pytest.mark.parametrize("size", [262_145, 57 * 840 * 6, 57 * 840 * 6 + 1, 500_000])
def test_streamed_attachment_is_read_back_unchanged(size: int) -> None:
    mail = blobs(size)
    assert mail.size == len(wire(mail))
    assert max(map(len, wire(mail).split(b"\r\n"))) == 76
    assert wire(mail) == wire(mail)  # the mail is read again for each recipient and attempt
    (file,) = judged(mail).iter_attachments()
    assert hashlib.sha256(file.get_content()).digest() == hashlib.sha256(bytes(size)).digest()


@pytest.mark.parametrize("actual", [299_999, 300_001, 0])
def test_attachment_of_another_size_is_an_error(actual: int) -> None:
    file = File(filename="z", content_type="application/zip", size=300_000, blob="z")
    mail = build_message(
        content(attachments=[file]),
        message_id="eml_1",
        date_ms=DATE_MS,
        entropy=bytes(12),
        open_blob=lambda _: io.BytesIO(bytes(actual)),
    )
    with pytest.raises(NotReady, match="300000 were expected"):
        wire(mail)


def test_missing_attachment_is_reported_in_plain_text(tmp_path: Path) -> None:
    file = StoredAttachment(blob="z", size=1, open_blob=lambda blob: open(tmp_path / blob, "rb"))
    with pytest.raises(NotReady) as raised:
        list(file.chunks())
    assert str(raised.value) == "the file of an attachment cannot be read: No such file or directory"


def test_long_text_is_sent_in_chunks() -> None:
    mail = make_mail(content(text="word " * 100_000))
    assert max(map(len, mail.chunks())) <= CHUNK_SIZE
    assert mail.size == len(wire(mail))


# -- text from HTML ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>Hi <b>Ann</b>,</p><p>bye.</p>", "Hi Ann,\n\nbye."),
        ("a<br>b<br/>c", "a\nb\nc"),
        ("<div>a</div><div><div>b</div></div>", "a\nb"),
        ("  <p>\n  a\n  b  </p>\n", "a b"),
        ("a&nbsp;&amp;&lt;b&gt; &eacute;&#128512;", "a &<b> é😀"),
        ("<ul><li>one</li><li><p>two</p></li><li></li></ul>end", "- one\n\n- two\n\nend"),
        ("<table><tr><td>Item</td><td>9 €</td></tr><tr><td>Sum</td><td>9 €</td></tr></table>", "Item 9 €\nSum 9 €"),
        ('<a href="https://a.test/x?b=1&amp;c=2">Open</a> it', "Open (https://a.test/x?b=1&c=2) it"),
        ("<a href='https://a.test/x'>a.test/x</a>", "a.test/x"),
        ("<a href=mailto:a@b.test>a@b.test</a>", "a@b.test"),
        ("<a href='javascript:alert(1)'>x</a>", "x"),
        ("<a href='https://a.test/'><img src=x alt='Shop &amp; go'></a>", "Shop & go (https://a.test/)"),
        ("<a href='https://a.test/'><img src=x></a>", "https://a.test/"),
        ("<a data-href='https://evil.test/'>x</a>", "x"),
        ("<head><title>T</title><style>p { a: b }</style></head><p>x<script>1 < 2</script>", "x"),
        ("<!DOCTYPE html><!-- a > b --><p title='a > b'>x<!-- open", "x"),
        ("<pre>a\n  b\n</pre>c", "a\n  b\n\nc"),
        ("1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
        ("<p title=it's>x</p>", "x"),
        ("<div>\u200c\u00a0\u034f\u200c&nbsp;</div><p>x</p>", "x"),
        ("<img src=x>", ""),
        ("", ""),
    ],
)
def test_html_gives_the_expected_text_part(html: str, text: str) -> None:
    assert html_to_plain_text(html) == text


@pytest.mark.parametrize("line", ["x é = . \n", "From me\n.\n\n", "y" * 200 + "\n"])
def test_long_text_encoded_in_steps_equals_one_step(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (line * 20_000).replace("\n", "\r\n").encode()
    in_steps = mime._quoted_printable(text)
    monkeypatch.setattr(mime, "ENCODE_STEP", len(text))
    assert in_steps == mime._quoted_printable(text)
    assert quopri.decodestring(in_steps) == text + b"\r\n"


@pytest.mark.parametrize(("piece", "ends"), [("<p>Hello</p>", "Hello\n"), ("x", "x\n")])
def test_long_html_is_converted_to_text_up_to_a_limit(piece: str, ends: str) -> None:
    text = html_to_plain_text(piece * 550_000)
    assert text.endswith(f"{ends}[…]") and len(text) < 600_000


# -- what a caller adds ------------------------------------------------------------------------------------


def png(name: str, content_id: str | None = None) -> File:
    return File(filename=name, content_type="image/png", size=1, base64="QQ==", content_id=content_id)


def test_inline_part_is_related_to_the_html() -> None:
    mail = judged(make_mail(content(html="<img src='cid:logo'>", attachments=[png("l.png", "logo"), png("a.png")])))
    assert mail.get_content_type() == "multipart/mixed"
    related, attached = mail.iter_parts()
    assert related.get_content_type() == "multipart/related"
    body_part, inline = related.iter_parts()
    assert body_part.get_content_type() in ("text/html", "multipart/alternative")
    assert (inline["Content-ID"], inline.get_content_disposition()) == ("<logo>", "inline")
    assert (attached["Content-ID"], attached.get_content_disposition()) == (None, "attachment")


def test_inline_parts_alone_need_no_mixed_part() -> None:
    mail = judged(make_mail(content(html="<img src='cid:logo'>", attachments=[png("l.png", "logo")])))
    assert mail.get_content_type() == "multipart/related"


def test_inline_part_without_html_is_attached() -> None:
    mail = judged(make_mail(content(text="Hi", attachments=[png("l.png", "logo")])))
    assert mail.get_content_type() == "multipart/mixed"


def test_custom_headers_and_several_reply_to_addresses_are_written() -> None:
    custom_headers = {
        "X-Order": "4711 ü",
        "List-Unsubscribe": "<https://acme.test/u/1>, <mailto:u@acme.test>",
        "References": "<1@a>",
    }
    mail = judged(make_mail(content(headers=custom_headers, reply_to=["a@acme.test", "b@acme.test"])))
    assert {name: str(mail[name]) for name in custom_headers} == custom_headers
    assert mail["Reply-To"] == "a@acme.test, b@acme.test"


def test_custom_header_cannot_inject_lines() -> None:
    with pytest.raises(ValueError, match="control character"):
        make_mail(content(headers={"X-A": "x\r\nBcc: a@b.test"}))
    assert "Bcc" not in parse_mail(make_mail(content(headers={"X-A": "=?utf-8?Q?=0D=0ABcc:?= x" * 20})))
