"""Converts mails to requests: mails of real programs, and malformed mails."""

import base64
import quopri
from email.message import EmailMessage

import pytest

from heliograph.domain.mail.address import Address, parse_address
from heliograph.domain.mail.mime_text import CHUNK_SIZE
from heliograph.domain.mail.mime_tree import HEADER_MAX, PARTS_MAX
from heliograph.domain.mail.smtp_to_request import SubmittedMail, parse_mailboxes, parse_submitted
from heliograph.domain.mail.tnef import FILE_DATA, FILE_NAME, FILE_START
from heliograph.domain.refusals import BodyTooLong, InvalidAttachment, InvalidRequest, Refusal

TO = "ada@example.com"
BASE64 = "Content-Transfer-Encoding: base64"


def addresses(*texts: str) -> list[Address]:
    return [address for text in texts if (address := parse_address(text))]


def parse(raw: str | bytes, *to: str) -> SubmittedMail:
    """Parse a mail after converting CRLF to LF, as some programs send it; the result must be the same."""
    content = raw.encode() if isinstance(raw, str) else raw
    submitted = parse_submitted(content, addresses(*(to or (TO,))))
    if b"\r" not in content:
        assert parse_submitted(content.replace(b"\n", b"\r\n"), addresses(*(to or (TO,)))) == submitted
    return submitted


def text_of(headers: str, body: bytes) -> str:
    """Return the text of a mail with one part."""
    result = parse(f"From: a@acme.test\nSubject: x\n{headers}".strip().encode() + b"\n\n" + body).request
    text: str = result.get("text") or result["html"]
    return text


TEXTS = {
    "nothing said": ("", b"plain", "plain"),
    "utf-8, not said": ("", "grün".encode(), "grün"),
    "latin-1, not said": ("", "grün".encode("latin-1"), "grün"),
    "latin-1, said to be ASCII": ("Content-Type: text/plain; charset=us-ascii", b"gr\xfcn \x93x\x94", "grün “x”"),
    "latin-1 with what only Windows has": ('Content-Type: text/plain; charset="ISO-8859-1"', b"5 \x80", "5 €"),
    "cyrillic": ("Content-Type: text/plain; charset=koi8-r", "привет".encode("koi8-r"), "привет"),
    "windows cyrillic": ("Content-Type: text/plain; charset=windows-1251", "привет".encode("cp1251"), "привет"),
    "japanese": ("Content-Type: text/plain; charset=ISO-2022-JP", "こんにちは".encode("iso-2022-jp"), "こんにちは"),
    "shift-jis by another name": ("Content-Type: text/plain; charset=x-sjis", "日本".encode("cp932"), "日本"),
    "korean": ("Content-Type: text/plain; charset=ks_c_5601-1987", "안녕".encode("cp949"), "안녕"),
    "chinese": ("Content-Type: text/plain; charset=gb2312", "你好".encode("gb2312"), "你好"),
    "utf-16": (f"Content-Type: text/plain; charset=utf-16\n{BASE64}", b"//5nAHIA/ABuAA==", "grün"),
    "a byte order mark": ("Content-Type: text/plain; charset=utf-8", b"\xef\xbb\xbfx", "x"),
    "a charset nobody knows": ("Content-Type: text/plain; charset=x-unknown", "grün".encode(), "grün"),
    "a codec that is none": ("Content-Type: text/plain; charset=hex", b"6162", "6162"),
    "quoted-printable": ("Content-Transfer-Encoding: Quoted-Printable", b"gr=C3=BCn =\nand =3D", "grün and ="),
    "quoted-printable with errors": ("Content-Transfer-Encoding: quoted-printable", b"50=% =ZZ", "50=% =ZZ"),
    "base64": (BASE64, b"Z3LD\nvG4=\n", "grün"),
    "base64 without its end": (BASE64, b"Z3LD\nvG4\n", "grün"),
    "UTF-8 that calls itself Latin-1": ("Content-Type: text/plain; charset=iso-8859-1", "grün".encode(), "grün"),
    "UTF-8 that calls itself Japanese": ("Content-Type: text/plain; charset=iso-2022-jp", "grün".encode(), "grün"),
    "Latin-1": ("Content-Type: text/plain; charset=iso-8859-1", b"gr\xfcn", "grün"),
    "Chinese that looks like UTF-8": ("Content-Type: text/plain; charset=gbk", "联通".encode("gbk"), "联通"),
    "html alone": ("Content-Type: text/html", b"<p>x</p>", "<p>x</p>"),
    "no type at all": ("Content-Type: nonsense", b"x", "x"),
    "flowed": ("Content-Type: text/plain; format=flowed", b"one \ntwo\n three\n-- \nme", "one two\nthree\n-- \nme"),
    "flowed, Asian": ("Content-Type: text/plain; format=flowed; delsp=yes", b"one \ntwo", "onetwo"),
    "flowed, quoted": ("Content-Type: text/plain; format=flowed", b"> a \n> b\n>> c\nd", "> a b\n>> c\nd"),
    "nothing": ("", b"", "\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_smtp_text_part_is_decoded(name: str) -> None:
    headers, body, text = TEXTS[name]
    assert text_of(headers, body) == text


SUBJECTS = {
    "=?utf-8?q?Gr=C3=BC=C3=9Fe?=": "Grüße",
    "=?UTF-8?B?R3LDvMOfZQ==?=": "Grüße",
    "=?UTF-8?B?R3LDvMOfZQ?=": "Grüße",  # no padding
    "=?utf-8?Q?Gr=C3?=\n =?utf-8?Q?=BC=C3=9Fe?= again": "Grüße again",  # cut inside a character
    "=?iso-8859-1?q?a?= =?utf-8?q?b?= c": "ab c",
    "=?utf-8*en?q?x?=": "x",
    "=?utf-8?q?with space?=": "with space",
    "=?utf-8?x?bad?= =?": "=?utf-8?x?bad?= =?",
    "folded\n\tline": "folded line",
    "Grüße": "Grüße",
}


@pytest.mark.parametrize("given", SUBJECTS)
def test_smtp_subject_is_decoded(given: str) -> None:
    assert parse(f"Subject: {given}\n\nx").request["subject"] == SUBJECTS[given]


ADDRESSES = {
    "a@b.test": [("", "a@b.test")],
    "<a@b.test>": [("", "a@b.test")],
    "Ada <a@b.test>, b@c.test": [("Ada", "a@b.test"), ("", "b@c.test")],
    '"Lovelace, Ada" <a@b.test>': [("Lovelace, Ada", "a@b.test")],
    r'"a \"b\"" <a@b.test>': [('a "b"', "a@b.test")],
    "=?utf-8?q?J=C3=BCrgen?= <j@b.test>": [("Jürgen", "j@b.test")],
    "a@b.test (a (nested) comment), c@d.test": [("", "a@b.test"), ("", "c@d.test")],
    "Team: a@b.test, c@d.test;, e@f.test": [("", "a@b.test"), ("", "c@d.test"), ("", "e@f.test")],
    "undisclosed-recipients:;": [],
    "": [],
    ",,;": [],
    "Ada <a@b.test": [("", "Adaa@b.test")],
    '"never closed <a@b.test>': [],
    "(never closed a@b.test": [],
}


@pytest.mark.parametrize("given", ADDRESSES)
def test_smtp_address_list_is_parsed(given: str) -> None:
    assert parse_mailboxes(given) == ADDRESSES[given]


def test_smtp_envelope_recipients_decide_to_cc_and_bcc() -> None:
    head = "From: a@acme.test\nSubject: x\nTo: Ada <ADA@example.com>, absent@example.com\nCc: bob@example.com\n\nx"
    result = parse(head, "bob@example.com", "ada@example.com", "eve@example.com")
    assert result.request["to"] == ["ada@example.com"]
    assert (result.request["cc"], result.request["bcc"]) == (["bob@example.com"], ["eve@example.com"])
    assert (result.to, result.cc) == (["Ada <ADA@example.com>", "absent@example.com"], ["bob@example.com"])
    only_cc = parse(head, "bob@example.com").request
    assert only_cc["to"] == ["bob@example.com"]
    assert "cc" not in only_cc


def test_a_name_that_no_header_can_hold_is_left_out() -> None:
    assert parse("To: =?utf-8?q?a=00b?= <ada@example.com>\n\nx").to == ["ada@example.com"]


MIXED = """From: a@acme.test
Subject: x
Content-Type: multipart/mixed;
  boundary="outer"

Only old mailers show this.
--outer
Content-Type: multipart/alternative; boundary=inner

--inner

the text
--inner
Content-Type: text/x-amp-html

<html amp>
--inner
Content-Type: text/html; charset=utf-8

<img src="cid:a+b@x"><p>
--inner--
--outer
Content-Type: image/png; name="=?utf-8?B?w6QucG5n?="
Content-ID: <a+b@x>
Content-Transfer-Encoding: base64

iVBORw==
--outer
Content-Type: image/png
Content-ID: <a+b@x>
Content-Disposition: inline; filename="again.png"

x
--outer
Content-Type: application/octet-stream; name=report.pdf
Content-Disposition: attachment;
 filename*0*=utf-8''%C3%84rger;
 filename*1=" 2026.pdf"

%PDF
--outer
Content-Disposition: attachment

a file
--outer
Content-Type: text/html

<p>after</p>
--outer--
What follows is nobody's.
--outer
Content-Type: text/plain

not a part
"""


def test_a_mail_of_every_kind_of_part() -> None:
    result = parse(MIXED).request
    assert (result["text"], result["html"]) == ("the text", '<img src="cid:a_b@x"><p><p>after</p>')
    assert [(item["filename"], item["content_type"], item["content_id"]) for item in result["attachments"]] == [
        ("ä.png", 'image/png; name="=?utf-8?B?w6QucG5n?="', "a_b@x"),
        ("again.png", "image/png", None),
        ("Ärger 2026.pdf", None, None),
        ("attachment-4.txt", None, None),
    ]


def test_an_invitation_stays_an_alternative() -> None:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "a@acme.test", "b@example.com", "Come"
    mail.set_content("Come")
    mail.add_alternative("<p>Come</p>", subtype="html")
    mail.add_alternative("BEGIN:VCALENDAR", subtype="calendar", params={"method": "REQUEST"})
    mail.add_attachment("BEGIN:VCALENDAR", subtype="calendar", filename="invite.ics")
    result = parse(mail.as_bytes())
    assert [item["filename"] for item in result.request["attachments"]] == ["attachment-1.ics", "invite.ics"]
    assert result.alternatives == (0,)


@pytest.mark.parametrize("coding", ["7bit", "8bit", "quoted-printable", "base64"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("title", ["Tea", "Tee f\u00fcr zwei"])
def test_invitation_is_sent_with_crlf_line_ends(coding: str, end: bytes, title: str) -> None:
    lines = ["BEGIN:VCALENDAR", f"SUMMARY:{title}", "END:VCALENDAR", ""]
    values = end.join(line.encode() for line in lines)
    coded = {"quoted-printable": quopri.encodestring, "base64": base64.encodebytes}.get(coding, bytes)(values)
    head = (
        b"From: a@acme.test\nTo: b@example.com\nSubject: Come\nMIME-Version: 1.0\n"
        b"Content-Type: multipart/alternative; boundary=b\n\n--b\nContent-Type: text/plain\n\nCome\n--b\n"
        b"Content-Type: text/calendar; charset=utf-8; method=REQUEST\nContent-Transfer-Encoding: %s\n\n"
    )
    raw = (head % coding.encode() + coded + b"\n--b--\n").replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    result = parse(raw)
    (file,) = result.request["attachments"]
    content = base64.b64decode(file["content"])
    assert content.rstrip() == "\r\n".join(lines).encode().rstrip() and result.alternatives == (0,)


def attribute(level: int, number: int, data: bytes) -> bytes:
    return bytes([level]) + number.to_bytes(4, "little") + len(data).to_bytes(4, "little") + data + b"\0\0"


WINMAIL = (
    b"\x78\x9f\x3e\x22\1\0"
    + attribute(1, 0x00089006, b"\0\0\1\0")
    + attribute(2, FILE_START, b"x")
    + attribute(2, FILE_NAME, b"a.pdf\0")
    + attribute(2, FILE_DATA, b"%PDF")
    + attribute(2, FILE_START, b"x")
    + attribute(2, FILE_NAME, b"b.txt\0")
)


@pytest.mark.parametrize(("cut", "names"), [(None, ["a.pdf", "b.txt"]), (-3, ["a.pdf"]), (3, [])])
def test_winmail_dat_attachments_are_unpacked(cut: int | None, names: list[str]) -> None:
    packed = base64.b64encode(WINMAIL[:cut]).decode()
    head = "Content-Type: multipart/mixed; boundary=b\n\n--b\n\nx\n--b\nContent-Type: application/ms-tnef"
    result = parse(f"{head}; name=winmail.dat\n{BASE64}\n\n{packed}\n--b--").request
    assert result["text"] == "x"
    assert [(item["filename"], item["content_type"]) for item in result.get("attachments", [])] == [
        (name, None) for name in names
    ]


def test_smtp_multipart_without_or_with_unclosed_boundary_is_read() -> None:
    assert parse("Content-Type: multipart/mixed\n\ntext").request["text"] == "text"
    assert parse('Content-Type: multipart/mixed; boundary="b"\n\nno part').request["text"] == "\n"
    assert parse('Content-Type: multipart/mixed; boundary="b"\n\n--b\n\ntext').request["text"] == "text"


def test_smtp_long_message_is_parsed_in_pieces() -> None:
    head, count = b"Subject: x\r\n", CHUNK_SIZE // 2
    dots = parse_submitted(head + b"\r\n" + b".x\r\n" * count, addresses(TO))
    assert dots.request["text"] == ".x\n" * count
    coded = b"Content-Transfer-Encoding: quoted-printable\r\n\r\n" + b"a=C3=BC=\r\n" * count
    assert parse_submitted(head + coded, addresses(TO)).request["text"] == "aü" * count


def test_lines_of_other_boundaries_are_text() -> None:
    body = "--bb\n\n--b\n\nx\n--bcd\n--b --\ny\n--b--\n"
    assert parse(f"Content-Type: multipart/mixed; boundary=b\n\n{body}").request["text"] == "x\n--bcd\n--b --\ny"


HEADERS = """From: a@acme.test
To: ada@example.com
X-Own: one
X-Own: two
x-mailer: PHP
X-Empty:
Received: from x
DKIM-Signature: v=1
Bcc: secret@example.com
List-ID: <x>
X-Heliograph-Unknown: 1
X-Tags: a, b:c, d
X-PM-Tag: e:f
Idempotency-Key: k
Message-ID: <m@x>

x"""


def test_smtp_custom_headers_are_kept() -> None:
    result = parse(HEADERS)
    assert result.request["headers"] == {"X-Own": "one", "x-mailer": "PHP", "List-ID": "<x>"}
    assert result.request["tags"] == {"tag": "a", "b": "c", "tag2": "d", "tag3": "e:f"}
    assert (result.idempotency_keys, result.message_id) == ([b"k"], "<m@x>")
    assert "secret" not in str(result)


def nested(depth: int) -> bytes:
    head = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(depth))
    return head + b"\nx"


def parts(count: int) -> bytes:
    return b"Content-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\nx\n" * count


BAD: dict[str, tuple[bytes, type[Refusal]]] = {
    "a null byte": (b"Subject: x\n\na\0b", InvalidRequest),
    "a null character": (b"Content-Transfer-Encoding: quoted-printable\n\na=00b", InvalidRequest),
    "a null character in a header": (b"X-PM-Tag: =?utf-8?q?=00?=\n\nx", InvalidRequest),
    "a header without an end": (b"X-A: " + b"x" * HEADER_MAX, InvalidRequest),
    "too many parts": (parts(PARTS_MAX + 1), InvalidRequest),
    "too many empty parts": (
        b"Content-Type: multipart/mixed; boundary=b\n\n"
        + b"--b\nContent-Type: multipart/mixed; boundary=c\n\n" * (PARTS_MAX + 1),
        InvalidRequest,
    ),
    "too deep": (nested(11), InvalidRequest),
    "a text too long": (b"\n" + b"x" * (16 << 20), BodyTooLong),
    "no base64": (b"Content-Transfer-Encoding: base64\n\nA", InvalidAttachment),
    "not a character of base64": (b"Content-Transfer-Encoding: base64\n\n!!!!", InvalidAttachment),
    "base64 that goes on after its end": (b"Content-Transfer-Encoding: base64\n\nQQ==QUJD", InvalidAttachment),
    "too many addresses": (b"To: " + b"a@b.test," * 1001 + b"\n\nx", InvalidRequest),
}


@pytest.mark.parametrize("name", BAD)
def test_smtp_malformed_message_is_refused(name: str) -> None:
    raw, refusal = BAD[name]
    with pytest.raises(refusal):
        parse(raw)


@pytest.mark.parametrize(
    ("given", "tags"),
    [
        ('["a, b", "c:d"]', {"tag": "a, b", "c": "d"}),
        ("[]", {}),
        ("[a, b", {"tag": "[a", "tag2": "b"}),
        ('[1, "b"]', {"tag": "[1", "tag2": '"b"]'}),
    ],
)
def test_smtp_x_tags_header_is_split_to_a_list(given: str, tags: dict[str, str]) -> None:
    assert parse(f"X-Tags: {given}\n\nx".encode()).request["tags"] == tags


def test_mail_at_the_limits_of_parts_and_nesting_is_accepted() -> None:
    assert len(parse(parts(PARTS_MAX)).request["attachments"]) == PARTS_MAX - 1
    assert parse(nested(10)).request["text"] == "x"


def test_smtp_message_of_the_python_library_round_trips() -> None:
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["To"] = "Ünï " * 40, "Jürgen <a@acme.test>", TO
    mail.set_content("Zeile\n" * 50 + "ü" * 500)
    mail.add_alternative("<p>ü</p>", subtype="html")
    mail.add_attachment(bytes(range(256)), maintype="image", subtype="gif", filename="日本語.gif")
    result = parse(mail.as_bytes()).request
    assert result["subject"] == ("Ünï " * 40).strip()
    assert result["from"] == "Jürgen <a@acme.test>"
    assert result["text"] == "Zeile\n" * 50 + "ü" * 500 + "\n"
    assert result["attachments"][0]["filename"] == "日本語.gif"
