"""Decodes text in untrusted MIME: charsets, transfer encodings, encoded words, parameters. Always in linear time."""

import re
from binascii import a2b_qp
from collections.abc import Iterator
from urllib.parse import unquote_to_bytes

import pybase64

from heliograph.domain.limits import MIB

# Other charsets are decoded as UTF-8: some Python codecs are slow or do more than decode.
_CHARSETS = frozenset(
    """koi8-r koi8-u iso-2022-jp iso-2022-kr shift_jis shift-jis euc-jp euc-kr cp949 cp932
    gb2312 gbk gb18030 big5 big5hkscs hz-gb-2312 tis-620 utf-16 utf-16le utf-16be utf-7 macintosh cp437 cp850
    cp866""".split()
    + [f"iso-8859-{n}" for n in (*range(2, 12), *range(13, 17))]
    + [f"windows-125{n}" for n in range(9)]
)
_MULTIBYTE_CHARSETS = frozenset(
    """iso-2022-jp iso-2022-kr shift_jis shift-jis euc-jp euc-kr cp949 cp932 gb2312 gbk gb18030 big5 big5hkscs
    hz-gb-2312 utf-16 utf-16le utf-16be utf-7""".split()
)
# Charset names used by mailers; "Latin-1" is decoded as its superset Windows-1252.
_CHARSET_ALIASES = {
    **dict.fromkeys(("latin1", "iso-8859-1", "iso8859-1", "cp1252", "x-ansi"), "windows-1252"),
    **dict.fromkeys(("x-sjis", "windows-31j"), "cp932"),
    **dict.fromkeys(("ks_c_5601-1987", "windows-949"), "cp949"),
    "x-gbk": "gbk",
    "iso-8859-8-i": "iso-8859-8",
    "x-mac-roman": "macintosh",
    "cp1251": "windows-1251",
    **dict.fromkeys(("utf7", "csutf7", "unicode-1-1-utf-7", "x-unicode-2-0-utf-7"), "utf-7"),
}
_SURROGATES = re.compile("[\ud800-\udfff]")  # UTF-7 can contain surrogates, which no other encoding can represent
_PARAMETER = re.compile(r';\s*([A-Za-z0-9_-]{1,40}(?:\*[0-9]{0,3}\*?)?)\s*=\s*("(?:[^"\\]|\\.)*"|[^;\s"]+)', re.DOTALL)
_ENCODED_WORD = re.compile(r"=\?([^?*\s]{1,40})(?:\*[^?\s]{0,20})?\?([BbQq])\?([^?\n]{0,1000})\?=")
_BASE64_WHITESPACE = b" \t\r\n"  # whitespace allowed within base64
CHUNK_SIZE = MIB  # octets decoded per step
_PARAMETERS_MAX = 4096  # characters of a field that are searched for parameters


def decode_text(content: bytes | bytearray, charset: str) -> str:
    """Decode with the declared charset; if that fails, with UTF-8, and then with Windows-1252."""
    name = charset.strip().lower()
    name = _CHARSET_ALIASES.get(name, name)
    # Single-byte charsets: UTF-8 is tried first, because such text is hardly ever valid UTF-8 by chance. Multi-byte
    # charsets: the declared charset is tried first, because such text may also be valid UTF-8.
    candidates = (
        (name, "utf-8-sig")
        if name in _MULTIBYTE_CHARSETS
        else ("utf-8-sig", name)
        if name in _CHARSETS
        else ("utf-8-sig",)
    )
    for candidate in candidates:
        try:
            return _SURROGATES.sub("\ufffd", content.decode(candidate))
        except UnicodeDecodeError:
            continue
    return _SURROGATES.sub("\ufffd", content.decode(name if name in _CHARSETS else "windows-1252", "replace"))


def decode_transfer_encoding(body: bytes, encoding: str) -> bytes:
    """Decode the transfer encoding; raise ValueError if the body is truncated or not base64."""
    encoding = encoding.strip().lower()
    if encoding == "base64":
        chunks = (
            body[start : start + CHUNK_SIZE].translate(None, _BASE64_WHITESPACE)
            for start in range(0, len(body), CHUNK_SIZE)
        )
        return pybase64.b64decode(pad_base64(b"".join(chunks)), validate=True)
    return b"".join(_decode_quoted_printable(body)) if encoding == "quoted-printable" else body


def pad_base64(text: bytes) -> bytes:
    """Add missing base64 padding."""
    missing = -len(text) % 4
    return text + b"=" * missing if missing < 3 else text


def _decode_quoted_printable(body: bytes) -> Iterator[bytes]:
    """Decode quoted-printable in pieces that start at an escape: a single call would block other threads."""
    start = 0
    while start < len(body):
        end = body.find(b"=", start + CHUNK_SIZE)
        end = len(body) if end < 0 else end
        yield a2b_qp(body[start:end])
        start = end


def decode_encoded_words(text: str) -> str:
    """Decode encoded words (RFC 2047), including characters split across words, as some mailers send them."""
    if "=?" not in text:
        return text
    parts: list[str] = []
    position, charset, pending = 0, "", bytearray()
    for match in _ENCODED_WORD.finditer(text):
        between = text[position : match.start()]
        position = match.end()
        if pending and (between.strip() or charset != match[1].lower()):
            parts.append(decode_text(pending, charset))
            pending.clear()
        if between.strip() or not charset:
            parts.append(between)
        charset = match[1].lower()
        pending += _decode_word(match[2], match[3])
    parts.append(decode_text(pending, charset))
    return "".join([*parts, text[position:]])


def _decode_word(kind: str, word: str) -> bytes:
    content = word.encode("utf-8", "replace")
    if kind in "Qq":
        return a2b_qp(content.replace(b"_", b"=20"))
    try:
        return pybase64.b64decode(content.rstrip(b"=") + b"==="[: -len(content.rstrip(b"=")) % 4])
    except ValueError:
        return content


def parse_parameters(value: str) -> dict[str, str]:
    """Return the parameters of a field such as Content-Type by lower-case name; RFC 2231 sections are joined."""
    if ";" not in value:
        return {}
    result: dict[str, str] = {}
    sections: dict[str, dict[int, tuple[bool, bytes]]] = {}
    for name, raw in _PARAMETER.findall(value[:_PARAMETERS_MAX]):
        text = re.sub(r"\\(.)", r"\1", raw[1:-1]) if raw.startswith('"') else raw
        base_name, star, rest = name.lower().partition("*")
        if not star:
            result.setdefault(base_name, decode_encoded_words(text))
        else:
            is_encoded = not rest or rest.endswith("*")
            sections.setdefault(base_name, {})[int(rest.rstrip("*") or 0)] = is_encoded, text.encode("utf-8", "replace")
    return result | {name: _join_sections(parts) for name, parts in sections.items()}


def _join_sections(sections: dict[int, tuple[bool, bytes]]) -> str:
    """Join the sections of a parameter; the first one, if encoded, starts with charset and language."""
    charset, value = "", b""
    for number, (is_encoded, content) in sorted(sections.items()):
        if is_encoded:
            if number == 0 and content.count(b"'") >= 2:
                head, _, content = content.split(b"'", 2)
                charset = head.decode("ascii", "replace")
            content = unquote_to_bytes(content)
        value += content
    return decode_text(value, charset)
