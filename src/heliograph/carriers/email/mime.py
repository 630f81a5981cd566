"""Builds the MIME message as bytes.

The output has only CRLF line ends, lines of at most 76 characters where a line can be folded (an address or a long word
in a subject cannot), a 7-bit body in which no line starts with a dot or with `From `, and exactly the intended header
fields.
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
from heliograph.domain.mail.attachments import EXTRA_TYPE_PATTERN
from heliograph.domain.mail.html_text import html_to_plain_text
from heliograph.domain.text import quoted

FOLDED_LINE_MAX = 76  # maximum characters of a line that can be folded (RFC 2045 6.7 and 6.8, RFC 2047 2)
LINE_MAX = 998  # maximum characters of any line (RFC 5322 2.1.1)
CHUNK_SIZE = 64 * KIB  # bytes yielded at a time
# Bytes of a file or text that are encoded at a time: 840 whole lines of 76 characters, less than CHUNK_SIZE.
ENCODE_STEP = 57 * 840
BASE64_WORD_BYTES = 39  # bytes in a base64 encoded word: the longest field name, `Subject: `, leaves 67 characters
Q_WORD_CHARS = 55  # characters in a Q-encoded word: 67 minus `=?utf-8?Q?` and `?=`
PARAMETER_SECTION_BYTES = 17  # bytes in a section of a parameter (RFC 2231): at most 51 characters when percent-encoded
ENTROPY_MIN = 8  # minimum bytes of entropy for the multipart boundaries

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # Unicode categories Cc, Zl and Zp
_MESSAGE_ID = re.compile("[A-Za-z0-9_-]{1,64}")
_ASCII_DISPLAY_NAME = re.compile("[ -~]{1,400}")
# ASCII text that is not encoded, because spam filters distrust needless encoding. It is folded only at single spaces,
# so that unfolding restores it exactly.
_UNENCODED_TEXT = re.compile("[!-~](?:[ -~]*[!-~])?")
_FOLDING_SPACE = re.compile("(?<=[!-~]) (?=[!-~])")
# Maximum characters between two folding spaces, so that the line with the field name stays below LINE_MAX
_UNBROKEN_MAX = 900
_QUOTABLE_FILENAME = re.compile(r"[ !#-\[\]-~]{1,50}")  # needs no escaping inside quotes
_TYPE_PARAMETER = re.compile("(charset|method)=([A-Za-z0-9._:+-]{1,40})")
_FIELD_NAME = re.compile(rb"[!-9;-~]+")

_NOT_CONTROL = bytes([*range(0x20, 0x7F), *range(0x80, 0x100)])
_QP_LITERAL = bytes(byte for byte in b"\t\r\n" + bytes(range(0x20, 0x7F)) if byte != ord("="))
# Matches an escaped space or tab at the end of a line that the escape makes too long
_OVERLONG_LINE_END = re.compile(rb"=(?:20|09)(?<=[^\r\n]{77})(?=\r\n)")
_DOT_OR_FROM_LINE = re.compile(rb"\r\n((?:\.|From )[^\r]*)")
_LONE_CR, _LONE_LF = re.compile(rb"\r(?!\n)"), re.compile(rb"(?<!\r)\n")
_ASCII_TEXT = b"\t\r\n" + bytes(range(0x20, 0x7F))
_Q_LITERAL = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!*+-/"  # valid in phrases (RFC 2047 5)
_Q_ENCODED = [b"%c" % byte if byte in _Q_LITERAL else b"=%02X" % byte for byte in range(256)]
_Q_ENCODED[ord(" ")] = b"_"

Fields = list[tuple[str, Sequence[bytes]]]  # field name, and the tokens between which the value may be folded


class StoredAttachment(msgspec.Struct, frozen=True, kw_only=True):
    """An attachment that is base64-encoded while it is read from disk, so that it is never in memory as a whole."""

    blob: str
    size: int  # bytes of the unencoded file
    open_blob: Callable[[str], BinaryIO]

    def __len__(self) -> int:
        """Return the length in base64, including line ends."""
        characters = (self.size + 2) // 3 * 4
        return characters + 2 * -(-characters // FOLDED_LINE_MAX)

    def chunks(self) -> Iterator[bytes]:
        size_read = 0
        try:
            with self.open_blob(self.blob) as file:
                while step := file.read(ENCODE_STEP):
                    size_read += len(step)
                    yield _base64_lines(step)
        except OSError as error:
            raise NotReady(f"the file of an attachment cannot be read: {error.strerror}") from error
        if size_read != self.size:
            raise NotReady(f"the file of an attachment has {size_read} bytes, {self.size} were expected")


class MimeMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A complete MIME message without DKIM signatures."""

    headers: bytes  # without the empty line after them
    body: tuple[bytes | StoredAttachment, ...]

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
            if isinstance(piece, StoredAttachment):
                yield from piece.chunks()
            elif len(piece) <= CHUNK_SIZE:
                yield piece
            else:
                yield from (piece[offset : offset + CHUNK_SIZE] for offset in range(0, len(piece), CHUNK_SIZE))


class MimeEntity(msgspec.Struct, frozen=True, kw_only=True):
    """A MIME entity: one part, or the whole mail."""

    head: bytes  # header fields of the part
    content: Sequence[bytes | StoredAttachment]  # the last item ends with a line end


def build_message(
    content: EmailContent,
    *,
    message_id: str,
    date_ms: int,
    entropy: bytes,
    open_blob: Callable[[str], BinaryIO],
) -> MimeMessage:
    """Build the MIME message; deterministic for equal arguments.

    `entropy` makes the multipart boundaries unpredictable. Raises ValueError if a value cannot be put in a header.
    """
    if len(entropy) < ENTROPY_MIN:
        raise ValueError(f"entropy has {len(entropy)} bytes, at least {ENTROPY_MIN} are needed")
    seed = entropy.hex().encode()
    entity = _body_entity(content, seed, open_blob)
    inline = [
        file for file in content.attachments if file.content_id and content.html is not None and not file.alternative
    ]
    if inline:
        entity = _multipart(
            "related", b"=_r" + seed, [entity, *(_attachment_entity(file, open_blob) for file in inline)]
        )
    regular = [file for file in content.attachments if file not in inline and not file.alternative]
    if regular:
        entity = _multipart(
            "mixed", b"=_m" + seed, [entity, *(_attachment_entity(file, open_blob) for file in regular)]
        )
    headers = _header_block(_header_fields(content, message_id, date_ms)) + entity.head
    return MimeMessage(headers=headers, body=tuple(_join_adjacent(entity.content)))


def check_headers(block: bytes, expected: Sequence[str]) -> None:
    """Raise ValueError unless `block` consists of exactly the expected fields on well-formed lines.

    This is the final protection against header injection.
    """
    lines = block.split(b"\r\n")
    # With all other characters removed, only CRLFs may remain: no bare CR or LF, no NUL, no other control character.
    if lines.pop() or block.translate(None, _NOT_CONTROL) != b"\r\n" * len(lines):
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


def _header_fields(content: EmailContent, message_id: str, date_ms: int) -> Fields:
    if not _MESSAGE_ID.fullmatch(message_id):
        raise ValueError(f"{quoted(message_id)} cannot be part of a Message-ID")
    sender = _mailbox(content.from_address)
    domain = sender.rpartition(b"@")[2].lower()
    fields: Fields = [
        ("From", [*(_phrase(content.from_name) if content.from_name else []), b"<" + sender + b">"]),
        ("To", _mailboxes(content.to) if content.to else [b"undisclosed-recipients:;"]),
    ]
    if content.cc:
        fields.append(("Cc", _mailboxes(content.cc)))
    if content.reply_to is not None:
        reply_to = [content.reply_to] if isinstance(content.reply_to, str) else content.reply_to
        fields.append(("Reply-To", _mailboxes(reply_to)))
    fields += [
        ("Subject", _unstructured(content.subject)),
        ("Date", [_date_field(date_ms)]),
        ("Message-ID", [b"<" + message_id.encode() + b"@" + domain + b">"]),
        ("MIME-Version", [b"1.0"]),
        *((name, _unstructured(value)) for name, value in content.headers.items()),
    ]
    return fields


def _header_block(fields: Fields) -> bytes:
    block = b"".join([_fold(name.encode(), tokens) for name, tokens in fields])
    check_headers(block, [name for name, _ in fields])
    return block


def _fold(name: bytes, tokens: Sequence[bytes]) -> bytes:
    field = name + b": " + b" ".join(tokens)
    if len(field) <= FOLDED_LINE_MAX:
        return field + b"\r\n"
    lines = [name + b": " + tokens[0]]
    for token in tokens[1:]:
        if len(lines[-1]) + 1 + len(token) > FOLDED_LINE_MAX:
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
    name_and_address = parse_name_addr(text)
    if name_and_address is None:
        raise ValueError(f"{quoted(text)} is not an address with a name")
    name, address = name_and_address
    return [*(_phrase(name) if name else []), b"<" + _mailbox(address.original) + b">"]


def _join_parameters(tokens: list[bytes]) -> list[bytes]:
    """Return the tokens of a field with a semicolon after each except the last."""
    return [*(token + b";" for token in tokens[:-1]), tokens[-1]]


def _phrase(name: str) -> list[bytes]:
    if not _check_no_control(name).strip():
        raise ValueError("the sender has no display name")
    if "=?" in name or not _ASCII_DISPLAY_NAME.fullmatch(name):
        return _encoded_words(name)
    escaped = name.replace("\\", r"\\").replace('"', r"\"")
    return [f'"{escaped}"'.encode()]


def _unstructured(text: str) -> list[bytes]:
    if "=?" not in text and _UNENCODED_TEXT.fullmatch(text):
        tokens = _FOLDING_SPACE.split(text)
        if max(map(len, tokens)) <= _UNBROKEN_MAX:
            return [token.encode() for token in tokens]
    return _encoded_words(_check_no_control(text)) or [b""]


def _check_no_control(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError(f"{quoted(text)} has a control character or a line break and cannot be in a header")
    return text


def _encoded_words(text: str) -> list[bytes]:
    """Return the text as encoded words (RFC 2047): in Q encoding if few bytes need an escape, otherwise in base64.

    Mail readers ignore the space between two encoded words.
    """
    encoded = text.encode()
    if 6 * len(encoded.translate(None, b" " + _Q_LITERAL)) < len(encoded):
        return [b"=?utf-8?Q?" + word + b"?=" for word in _q_words(text)]
    return [b"=?utf-8?B?" + pybase64.b64encode(piece) + b"?=" for piece in _split_utf8(text, BASE64_WORD_BYTES)]


def _q_words(text: str) -> Iterator[bytes]:
    word = b""
    for character in text:
        quoted_character = b"".join([_Q_ENCODED[byte] for byte in character.encode()])
        if len(word) + len(quoted_character) > Q_WORD_CHARS:
            yield word
            word = b""
        word += quoted_character
    yield word


def _split_utf8(text: str, size: int) -> Iterator[bytes]:
    """Yield the text as UTF-8 pieces of at most `size` bytes, split between characters."""
    encoded = text.encode()
    start = 0
    while start < len(encoded):
        end = start + size
        while end < len(encoded) and encoded[end] & 0xC0 == 0x80:
            end -= 1
        yield encoded[start:end]
        start = end


def _date_field(ms: int) -> bytes:
    utc = time.gmtime(ms // 1000)
    day = f"{_DAYS[utc.tm_wday]}, {utc.tm_mday:02} {_MONTHS[utc.tm_mon - 1]} {utc.tm_year:04}"
    return f"{day} {utc.tm_hour:02}:{utc.tm_min:02}:{utc.tm_sec:02} +0000".encode()


# -- parts -------------------------------------------------------------------------------------------------


def _body_entity(content: EmailContent, seed: bytes, open_blob: Callable[[str], BinaryIO]) -> MimeEntity:
    """Return the message body: text, HTML, an invitation, or a multipart/alternative of several of them."""
    text, html = content.text, content.html
    if html is None and text is None:
        raise ValueError("the mail has neither text nor HTML")
    if text is None:
        text = html_to_plain_text(html or "")
    parts = [_text_entity("plain", text)] if text or html is None else []
    parts += [_text_entity("html", html)] if html is not None else []
    parts += [_attachment_entity(file, open_blob) for file in content.attachments if file.alternative]
    return _multipart("alternative", b"=_a" + seed, parts) if parts[1:] else parts[0]


def _multipart(kind: str, boundary: bytes, entities: Iterable[MimeEntity]) -> MimeEntity:
    """Join entities into a multipart entity.

    The boundary starts with `=_`, which cannot occur in quoted-printable or base64, and therefore occurs in no part.
    """
    content: list[bytes | StoredAttachment] = []
    for entity in entities:
        content += [b"--" + boundary + b"\r\n" + entity.head + b"\r\n", *entity.content]
    content.append(b"--" + boundary + b"--\r\n")
    header_block = _header_block([("Content-Type", [f"multipart/{kind};".encode(), b'boundary="' + boundary + b'"'])])
    return MimeEntity(head=header_block, content=content)


def _text_entity(kind: str, text: str) -> MimeEntity:
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    plain = text.removesuffix("\n").replace("\n", "\r\n").encode()
    # Quoted-printable is readable in the raw mail and costs two more bytes per escape; spam filters distrust base64 for
    # text that is mostly ASCII.
    if not text.isascii() and len(plain.translate(None, _QP_LITERAL)) * 4 > len(plain):
        encoding, encoded = b"base64", _base64_lines(plain)
    else:
        encoding, encoded = b"quoted-printable", _quoted_printable(plain)
    return MimeEntity(head=_text_head(kind, encoding), content=[encoded])


@cache
def _text_head(kind: str, encoding: bytes) -> bytes:
    content_type = f"text/{kind}; charset=utf-8".encode()
    return _header_block([("Content-Type", [content_type]), ("Content-Transfer-Encoding", [encoding])])


def _attachment_entity(file: File, open_blob: Callable[[str], BinaryIO]) -> MimeEntity:
    media_type, *parameters = file.content_type.split("; ")
    matches = [_TYPE_PARAMETER.fullmatch(parameter) for parameter in parameters]
    if not EXTRA_TYPE_PATTERN.fullmatch(media_type) or not all(matches):
        raise ValueError(f"{quoted(file.content_type)} is not an attachment's type")
    type_parameters = [f'{match[1]}="{match[2]}"'.encode() for match in matches if match]
    encoding, encoded = _encode_file(file, media_type, open_blob)
    if not file.alternative:
        type_parameters += _parameter("name", file.filename)
    fields: Fields = [
        ("Content-Type", _join_parameters([media_type.encode(), *type_parameters])),
        ("Content-Transfer-Encoding", [encoding]),
    ]
    if not file.alternative:
        disposition = b"attachment" if file.content_id is None else b"inline"
        fields.append(("Content-Disposition", _join_parameters([disposition, *_parameter("filename", file.filename)])))
        if file.content_id is not None:
            fields.append(("Content-ID", [f"<{file.content_id}>".encode()]))
    return MimeEntity(head=_header_block(fields), content=[encoded])


def _encode_file(
    file: File, media_type: str, open_blob: Callable[[str], BinaryIO]
) -> tuple[bytes, bytes | StoredAttachment]:
    """Return a file's transfer encoding and its encoded content.

    A file on disk is encoded in base64 while the mail is sent, and not loaded before.
    """
    if file.blob is not None:
        return b"base64", StoredAttachment(blob=file.blob, size=file.size, open_blob=open_blob)
    if file.base64 is None:
        raise ValueError(f"attachment {quoted(file.filename)} has no content")
    content = pybase64.b64decode(file.base64, validate=True)
    if media_type.startswith("text/") and not content.translate(None, _ASCII_TEXT):
        return b"quoted-printable", _exact_quoted_printable(content)
    return b"base64", _base64_lines(content)


def _parameter(name: str, value: str) -> list[bytes]:
    """Return a header parameter, encoded and split as in RFC 2231 if necessary."""
    if "=?" not in value and _QUOTABLE_FILENAME.fullmatch(value):
        return [f'{name}="{value}"'.encode()]
    pieces = _split_utf8(_check_no_control(value), PARAMETER_SECTION_BYTES)
    sections = [quote(piece, safe="") for piece in pieces] or [""]
    sections[0] = "utf-8''" + sections[0]
    if len(sections) == 1:
        return [f"{name}*={sections[0]}".encode()]
    return [f"{name}*{number}*={section}".encode() for number, section in enumerate(sections)]


def _join_adjacent(pieces: Iterable[bytes | StoredAttachment]) -> Iterator[bytes | StoredAttachment]:
    """Yield the pieces with adjacent bytes joined, so that a mail without files on disk is one piece."""
    adjacent: list[bytes] = []
    for piece in pieces:
        if isinstance(piece, StoredAttachment):
            yield b"".join(adjacent)
            yield piece
            adjacent = []
        else:
            adjacent.append(piece)
    yield b"".join(adjacent)


# -- transfer encodings ------------------------------------------------------------------------------------


def _base64_lines(content: bytes) -> bytes:
    return pybase64.encodebytes(content).replace(b"\n", b"\r\n") or b"\r\n"


def _quoted_printable(text: bytes) -> bytes:
    """Encode text as quoted-printable, in steps that end at line ends: the encoder holds the GIL until it returns."""
    encoded, start = list[bytes](), 0
    while (end := text.find(b"\r\n", start + ENCODE_STEP)) >= 0:
        encoded.append(_quoted_lines(text[start:end]))
        start = end + 2
    return b"".join([*encoded, _quoted_lines(text[start:])])


def _quoted_lines(text: bytes) -> bytes:
    """Encode CRLF-separated lines as quoted-printable, and add a final line end, which is not part of the text."""
    encoded = binascii.b2a_qp(b"\r\n" + text + b"\r\n")
    encoded = _OVERLONG_LINE_END.sub(rb"=\r\n\g<0>", encoded)
    return _DOT_OR_FROM_LINE.sub(lambda line: b"\r\n" + _escape_line_start(line[1]), encoded)[2:]


def _escape_line_start(line: bytes) -> bytes:
    """Escape the first character of a line that starts with a dot (SMTP's end of mail) or `From ` (mbox separator).

    A line that becomes too long is split with a soft line break.
    """
    line = b"=%02X" % line[0] + line[1:]
    if len(line) < FOLDED_LINE_MAX:
        return line
    split_at = FOLDED_LINE_MAX - 4
    while b"=" in line[split_at - 2 : split_at]:  # do not split an escape
        split_at -= 1
    remainder = line[split_at:]
    if remainder.startswith((b".", b"From ")):
        remainder = _escape_line_start(remainder)
    return line[:split_at] + b"=\r\n" + remainder


def _exact_quoted_printable(content: bytes) -> bytes:
    """Return an ASCII file in quoted-printable; every byte is preserved, including line ends other than CRLF."""
    # Each lone CR or LF becomes a byte that does not occur in ASCII; the escape of that byte is then replaced.
    marked_content = _LONE_LF.sub(b"\x81\r\n", _LONE_CR.sub(b"\x80", content))
    return _quoted_printable(marked_content).replace(b"=80", b"=0D").replace(b"=81\r\n", b"=0A=\r\n")
