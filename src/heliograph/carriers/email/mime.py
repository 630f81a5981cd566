"""Builds the MIME message as bytes.

The output has only CRLF line ends, lines of at most 76 characters where a line can be folded (an address or a long
word in a subject cannot), a 7-bit body in which no line starts with a dot or with `From `, and exactly the intended
header fields.
"""

import binascii
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import BinaryIO
from urllib.parse import quote

import msgspec
import pybase64

from heliograph.carriers.contract import NotReady
from heliograph.domain.delivery.content import EmailContent, File
from heliograph.domain.limits import KIB
from heliograph.domain.mail.address import parse_address, parse_name_addr
from heliograph.domain.mail.attachments import ADDED_TYPE
from heliograph.domain.mail.html_text import text_from_html
from heliograph.domain.text import quoted

LINE = 76  # maximum characters of a line that can be folded (RFC 2045 6.7 and 6.8, RFC 2047 2)
LINE_MAX = 998  # maximum characters of any line (RFC 5322 2.1.1)
CHUNK = 64 * KIB  # bytes yielded at a time
STEP = 57 * 840  # bytes of a file or text encoded at a time: gives whole lines of 76 characters, and less than a CHUNK
WORD = 39  # bytes in a base64 encoded word: the longest field name, `Subject: `, leaves 67 characters
Q_WORD = 55  # characters in a Q-encoded word: 67 minus `=?utf-8?Q?` and `?=`
SECTION = 17  # bytes in a section of a parameter (RFC 2231): at most 51 characters when percent-encoded
ENTROPY_MIN = 8  # bytes

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # Unicode categories Cc, Zl and Zp
_ID = re.compile("[A-Za-z0-9_-]{1,64}")
_NAME = re.compile("[ -~]{1,400}")
# ASCII text that is not encoded, because spam filters distrust needless encoding. It is folded only at single spaces,
# so that unfolding restores it exactly.
_PLAIN = re.compile("[!-~](?:[ -~]*[!-~])?")
_FOLD = re.compile("(?<=[!-~]) (?=[!-~])")
_UNBROKEN = 900  # maximum characters without such a space, so that the line with the field name stays below LINE_MAX
_FILENAME = re.compile(r"[ !#-\[\]-~]{1,50}")  # needs no escaping inside quotes
_TYPE_PARAMETER = re.compile("(charset|method)=([A-Za-z0-9._:+-]{1,40})")
_FIELD_NAME = re.compile(rb"[!-9;-~]+")

_NO_CONTROL = bytes([*range(0x20, 0x7F), *range(0x80, 0x100)])
_AS_IS = bytes(byte for byte in b"\t\r\n" + bytes(range(0x20, 0x7F)) if byte != ord("="))
_LONG_END = re.compile(rb"=(?:20|09)(?<=[^\r\n]{77})(?=\r\n)")  # an escaped space or tab that makes its line too long
_EXPOSED = re.compile(rb"\r\n((?:\.|From )[^\r]*)")
_LONE_CR, _LONE_LF = re.compile(rb"\r(?!\n)"), re.compile(rb"(?<!\r)\n")
_ASCII_TEXT = b"\t\r\n" + bytes(range(0x20, 0x7F))
_Q_AS_IS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!*+-/"  # valid in phrases (RFC 2047 5)
_Q = [b"%c" % byte if byte in _Q_AS_IS else b"=%02X" % byte for byte in range(256)]
_Q[ord(" ")] = b"_"

Fields = list[tuple[str, Sequence[bytes]]]  # field name, and the tokens between which the value may be folded


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """An attachment that is base64-encoded while it is read from disk, so that it is never completely in memory."""

    blob: str
    size: int  # bytes of the unencoded file
    open_blob: Callable[[str], BinaryIO]

    def __len__(self) -> int:
        """Return the encoded length with line ends."""
        characters = (self.size + 2) // 3 * 4
        return characters + 2 * -(-characters // LINE)

    def chunks(self) -> Iterator[bytes]:
        seen = 0
        try:
            with self.open_blob(self.blob) as file:
                while step := file.read(STEP):
                    seen += len(step)
                    yield _base64(step)
        except OSError as error:
            raise NotReady(f"the file of an attachment cannot be read: {error.strerror}") from error
        if seen != self.size:
            raise NotReady(f"the file of an attachment has {seen} bytes, {self.size} were expected")


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """A complete MIME message without DKIM signatures."""

    headers: bytes  # without the empty line after them
    body: tuple[bytes | Attached, ...]

    @property
    def needs_utf8(self) -> bool:
        """Return whether a header has a non-ASCII local part, which only a server with SMTPUTF8 accepts."""
        return not self.headers.isascii()

    @property
    def size(self) -> int:
        return len(self.headers) + 2 + sum(map(len, self.body))

    def chunks(self) -> Iterator[bytes]:
        """Yield the whole mail in chunks; may be called repeatedly."""
        yield self.headers + b"\r\n"
        yield from self.body_chunks()

    def body_chunks(self) -> Iterator[bytes]:
        for piece in self.body:
            if isinstance(piece, Attached):
                yield from piece.chunks()
            elif len(piece) <= CHUNK:
                yield piece
            else:
                yield from (piece[at : at + CHUNK] for at in range(0, len(piece), CHUNK))


class Entity(msgspec.Struct, frozen=True, kw_only=True):
    """A MIME entity: one part, or the whole mail."""

    head: bytes  # header fields of the part
    content: Sequence[bytes | Attached]  # the last item ends with a line end


def build(
    content: EmailContent,
    *,
    message_id: str,
    date_ms: int,
    entropy: bytes,
    open_blob: Callable[[str], BinaryIO],
) -> Mail:
    """Build the MIME message; deterministic for equal arguments.

    `entropy` makes the multipart boundaries unpredictable. Raises ValueError if a value cannot be put in a header.
    """
    if len(entropy) < ENTROPY_MIN:
        raise ValueError(f"entropy has {len(entropy)} bytes, at least {ENTROPY_MIN} are needed")
    seed = entropy.hex().encode()
    entity = _written(content, seed, open_blob)
    inline = [
        file for file in content.attachments if file.content_id and content.html is not None and not file.alternative
    ]
    if inline:
        entity = _multipart("related", b"=_r" + seed, [entity, *(_attachment(file, open_blob) for file in inline)])
    files = [file for file in content.attachments if file not in inline and not file.alternative]
    if files:
        entity = _multipart("mixed", b"=_m" + seed, [entity, *(_attachment(file, open_blob) for file in files)])
    headers = _block(_own_fields(content, message_id, date_ms)) + entity.head
    return Mail(headers=headers, body=tuple(_joined(entity.content)))


def check_headers(block: bytes, expected: Sequence[str]) -> None:
    """Raise ValueError unless `block` consists of exactly the expected fields on well-formed lines.

    This is the final protection against header injection.
    """
    lines = block.split(b"\r\n")
    # With all other characters removed, only CRLFs may remain: no bare CR or LF, no NUL, no other control character.
    if lines.pop() or block.translate(None, _NO_CONTROL) != b"\r\n" * len(lines):
        raise ValueError("the header block has a control character or a bare line end")
    names: list[str] = []
    for line in lines:
        if len(line) > LINE_MAX:
            raise ValueError(f"the header block has a line of {len(line)} bytes")
        if line.startswith(b" "):
            if not names or line.isspace():
                raise ValueError("the header block has an empty or misplaced continuation line")
            continue
        name, colon, _ = line.partition(b":")
        if not colon or not _FIELD_NAME.fullmatch(name):
            raise ValueError(f"the header block has a line that is not a field: {line[:80]!r}")
        names.append(name.decode())
    if sorted(names) != sorted(expected):
        raise ValueError(f"the header block has the fields {names}, {list(expected)} were expected")


# -- header fields -----------------------------------------------------------------------------------------


def _own_fields(content: EmailContent, message_id: str, date_ms: int) -> Fields:
    if not _ID.fullmatch(message_id):
        raise ValueError(f"{quoted(message_id)} cannot be part of a Message-ID")
    sender = _mailbox(content.from_address)
    domain = sender.rpartition(b"@")[2].lower()
    fields: Fields = [
        ("From", [*_phrase(content.from_name), b"<" + sender + b">"]),
        ("To", _mailboxes(content.to) if content.to else [b"undisclosed-recipients:;"]),
    ]
    if content.cc:
        fields.append(("Cc", _mailboxes(content.cc)))
    if content.reply_to is not None:
        reply_to = [content.reply_to] if isinstance(content.reply_to, str) else content.reply_to
        fields.append(("Reply-To", _mailboxes(reply_to)))
    fields += [
        ("Subject", _unstructured(content.subject)),
        ("Date", [_date(date_ms)]),
        ("Message-ID", [b"<" + message_id.encode() + b"@" + domain + b">"]),
        ("MIME-Version", [b"1.0"]),
        *((name, _unstructured(value)) for name, value in content.headers.items()),
    ]
    return fields


def _block(fields: Fields) -> bytes:
    block = b"".join([_folded(name.encode(), tokens) for name, tokens in fields])
    check_headers(block, [name for name, _ in fields])
    return block


def _folded(name: bytes, tokens: Sequence[bytes]) -> bytes:
    field = name + b": " + b" ".join(tokens)
    if len(field) <= LINE:
        return field + b"\r\n"
    lines = [name + b": " + tokens[0]]
    for token in tokens[1:]:
        if len(lines[-1]) + 1 + len(token) > LINE:
            lines.append(b"")
        lines[-1] += b" " + token
    return b"\r\n".join(lines) + b"\r\n"


def _mailbox(text: str) -> bytes:
    """Return the address unchanged, except that a non-ASCII domain is converted to A-labels."""
    address = parse_address(text)
    if address is None:
        raise ValueError(f"{quoted(text)} is not an email address")
    local, _, domain = text.rpartition("@")
    return (text if domain.isascii() else f"{local}@{address.domain}").encode()


def _mailboxes(texts: Sequence[str]) -> list[bytes]:
    mailboxes = [_named_mailbox(text) if text.endswith(">") else [_mailbox(text)] for text in texts]
    for mailbox in mailboxes[:-1]:
        mailbox[-1] += b","
    return [token for mailbox in mailboxes for token in mailbox]


def _named_mailbox(text: str) -> list[bytes]:
    found = parse_name_addr(text)
    if found is None:
        raise ValueError(f"{quoted(text)} is not an address with a name")
    name, address = found
    return [*(_phrase(name) if name else []), b"<" + _mailbox(address.given) + b">"]


def _separated(tokens: list[bytes], mark: bytes) -> list[bytes]:
    return [*(token + mark for token in tokens[:-1]), tokens[-1]]


def _phrase(name: str) -> list[bytes]:
    if not _line(name).strip():
        raise ValueError("the sender has no display name")
    if "=?" in name or not _NAME.fullmatch(name):
        return _words(name)
    escaped = name.replace("\\", r"\\").replace('"', r"\"")
    return [f'"{escaped}"'.encode()]


def _unstructured(text: str) -> list[bytes]:
    if "=?" not in text and _PLAIN.fullmatch(text):
        tokens = _FOLD.split(text)
        if max(map(len, tokens)) <= _UNBROKEN:
            return [token.encode() for token in tokens]
    return _words(_line(text)) or [b""]


def _line(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError(f"{quoted(text)} has a control character or a line break and cannot be in a header")
    return text


def _words(text: str) -> list[bytes]:
    """Return the text as encoded words (RFC 2047), in Q or base64 encoding, depending on the share of escapes.

    Readers ignore the space between two encoded words.
    """
    whole = text.encode()
    if 6 * len(whole.translate(None, b" " + _Q_AS_IS)) < len(whole):
        return [b"=?utf-8?Q?" + word + b"?=" for word in _q_words(text)]
    return [b"=?utf-8?B?" + pybase64.b64encode(piece) + b"?=" for piece in _pieces(text, WORD)]


def _q_words(text: str) -> Iterator[bytes]:
    word = b""
    for character in text:
        quoted_character = b"".join([_Q[byte] for byte in character.encode()])
        if len(word) + len(quoted_character) > Q_WORD:
            yield word
            word = b""
        word += quoted_character
    yield word


def _pieces(text: str, size: int) -> Iterator[bytes]:
    """Yield the text as UTF-8 pieces of at most `size` bytes, split between characters."""
    whole = text.encode()
    start = 0
    while start < len(whole):
        end = start + size
        while end < len(whole) and whole[end] & 0xC0 == 0x80:
            end -= 1
        yield whole[start:end]
        start = end


def _date(ms: int) -> bytes:
    at = time.gmtime(ms // 1000)
    day = f"{_DAYS[at.tm_wday]}, {at.tm_mday:02} {_MONTHS[at.tm_mon - 1]} {at.tm_year:04}"
    return f"{day} {at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02} +0000".encode()


# -- parts -------------------------------------------------------------------------------------------------


def _written(content: EmailContent, seed: bytes, open_blob: Callable[[str], BinaryIO]) -> Entity:
    """Return the message body: text, HTML, an invitation, or a multipart/alternative of several of them."""
    text, html = content.text, content.html
    if html is None and text is None:
        raise ValueError("the mail has neither text nor HTML")
    if text is None:
        text = text_from_html(html or "")
    parts = [_text("plain", text)] if text or html is None else []
    parts += [_text("html", html)] if html is not None else []
    parts += [_attachment(file, open_blob) for file in content.attachments if file.alternative]
    return _multipart("alternative", b"=_a" + seed, parts) if parts[1:] else parts[0]


def _multipart(kind: str, boundary: bytes, entities: Iterable[Entity]) -> Entity:
    """Join parts into a multipart entity.

    The boundary starts with `=_`, which cannot occur in quoted-printable or base64 and thus in no part.
    """
    content: list[bytes | Attached] = []
    for entity in entities:
        content += [b"--" + boundary + b"\r\n" + entity.head + b"\r\n", *entity.content]
    content.append(b"--" + boundary + b"--\r\n")
    head = _block([("Content-Type", [f"multipart/{kind};".encode(), b'boundary="' + boundary + b'"'])])
    return Entity(head=head, content=content)


def _text(kind: str, text: str) -> Entity:
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    plain = text.removesuffix("\n").replace("\n", "\r\n").encode()
    # Quoted-printable is readable in the raw mail and costs two more bytes per escape; spam filters distrust base64 for
    # text that is mostly ASCII.
    if not text.isascii() and len(plain.translate(None, _AS_IS)) * 4 > len(plain):
        encoding, encoded = b"base64", _base64(plain)
    else:
        encoding, encoded = b"quoted-printable", _quoted_printable(plain)
    return Entity(head=_text_head(kind, encoding), content=[encoded])


@cache
def _text_head(kind: str, encoding: bytes) -> bytes:
    content_type = f"text/{kind}; charset=utf-8".encode()
    return _block([("Content-Type", [content_type]), ("Content-Transfer-Encoding", [encoding])])


def _attachment(file: File, open_blob: Callable[[str], BinaryIO]) -> Entity:
    plain, *parameters = file.content_type.split("; ")
    found = [_TYPE_PARAMETER.fullmatch(parameter) for parameter in parameters]
    if not ADDED_TYPE.fullmatch(plain) or not all(found):
        raise ValueError(f"{quoted(file.content_type)} is not an attachment's type")
    kept = [f'{match[1]}="{match[2]}"'.encode() for match in found if match]
    encoding, encoded = _encoded(file, plain, open_blob)
    shown = b"attachment" if file.content_id is None else b"inline"
    if file.alternative:
        kind: Fields = [("Content-Type", _separated([plain.encode(), *kept], b";"))]
        return Entity(head=_block([*kind, ("Content-Transfer-Encoding", [encoding])]), content=[encoded])
    fields: Fields = [
        ("Content-Type", _separated([plain.encode(), *kept, *_parameter("name", file.filename)], b";")),
        ("Content-Transfer-Encoding", [encoding]),
        ("Content-Disposition", _separated([shown, *_parameter("filename", file.filename)], b";")),
    ]
    if file.content_id is not None:
        fields.append(("Content-ID", [f"<{file.content_id}>".encode()]))
    return Entity(head=_block(fields), content=[encoded])


def _encoded(file: File, kind: str, open_blob: Callable[[str], BinaryIO]) -> tuple[bytes, bytes | Attached]:
    """Return the transfer encoding and the encoded file. Files on disk stay there until sent, and use base64."""
    if file.blob is not None:
        return b"base64", Attached(blob=file.blob, size=file.size, open_blob=open_blob)
    if file.base64 is None:
        raise ValueError(f"attachment {quoted(file.filename)} has no content")
    content = pybase64.b64decode(file.base64, validate=True)
    if kind.startswith("text/") and not content.translate(None, _ASCII_TEXT):
        return b"quoted-printable", _exact(content)
    return b"base64", _base64(content)


def _parameter(name: str, value: str) -> list[bytes]:
    """Return a header parameter, encoded and split as in RFC 2231 if necessary."""
    if "=?" not in value and _FILENAME.fullmatch(value):
        return [f'{name}="{value}"'.encode()]
    sections = [quote(piece, safe="") for piece in _pieces(_line(value), SECTION)] or [""]
    sections[0] = "utf-8''" + sections[0]
    if len(sections) == 1:
        return [f"{name}*={sections[0]}".encode()]
    return [f"{name}*{number}*={section}".encode() for number, section in enumerate(sections)]


def _joined(pieces: Iterable[bytes | Attached]) -> Iterator[bytes | Attached]:
    """Yield the pieces with adjacent bytes joined, so that a mail without files on disk is one piece."""
    waiting: list[bytes] = []
    for piece in pieces:
        if isinstance(piece, Attached):
            yield b"".join(waiting)
            yield piece
            waiting = []
        else:
            waiting.append(piece)
    yield b"".join(waiting)


# -- transfer encodings ------------------------------------------------------------------------------------


def _base64(content: bytes) -> bytes:
    return pybase64.encodebytes(content).replace(b"\n", b"\r\n") or b"\r\n"


def _quoted_printable(text: bytes) -> bytes:
    """Encode in steps that end at line ends, because the encoder holds the GIL until it returns."""
    done, at = list[bytes](), 0
    while (end := text.find(b"\r\n", at + STEP)) >= 0:
        done.append(_quoted_lines(text[at:end]))
        at = end + 2
    return b"".join([*done, _quoted_lines(text[at:])])


def _quoted_lines(text: bytes) -> bytes:
    """Encode lines that end with CRLF; the final line end is added by the encoding and is not part of the text."""
    encoded = binascii.b2a_qp(b"\r\n" + text + b"\r\n")
    encoded = _LONG_END.sub(rb"=\r\n\g<0>", encoded)
    return _EXPOSED.sub(lambda line: b"\r\n" + _guarded(line[1]), encoded)[2:]


def _guarded(line: bytes) -> bytes:
    """Escape the first character of a line that starts with a dot (SMTP's end of mail) or `From ` (mbox separator).

    A line that becomes too long is split with a soft line break.
    """
    line = b"=%02X" % line[0] + line[1:]
    if len(line) < LINE:
        return line
    cut = LINE - 4
    while b"=" in line[cut - 2 : cut]:  # do not split an escape
        cut -= 1
    end = line[cut:]
    return line[:cut] + b"=\r\n" + (_guarded(end) if end.startswith((b".", b"From ")) else end)


def _exact(content: bytes) -> bytes:
    """Return an ASCII file in quoted-printable; every byte is preserved, including line ends other than CRLF."""
    marked = _LONE_LF.sub(b"\x81\r\n", _LONE_CR.sub(b"\x80", content))
    return _quoted_printable(marked).replace(b"=80", b"=0D").replace(b"=81\r\n", b"=0A=\r\n")
