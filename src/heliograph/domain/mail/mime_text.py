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
_WIDE = frozenset(
    """iso-2022-jp iso-2022-kr shift_jis shift-jis euc-jp euc-kr cp949 cp932 gb2312 gbk gb18030 big5 big5hkscs
    hz-gb-2312 utf-16 utf-16le utf-16be utf-7""".split()
)
# Charset names used by mailers; "Latin-1" is decoded as its superset Windows-1252.
_ALIASES = {
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
_WORD = re.compile(r"=\?([^?*\s]{1,40})(?:\*[^?\s]{0,20})?\?([BbQq])\?([^?\n]{0,1000})\?=")
_WHITE = b" \t\r\n"  # whitespace allowed within base64
PIECE = MIB  # octets decoded per step
_VALUE_MAX = 4096  # characters of a field that are searched for parameters


def decoded(content: bytes | bytearray, charset: str) -> str:
    """Decode with the declared charset, otherwise UTF-8, otherwise Windows-1252."""
    name = charset.strip().lower()
    name = _ALIASES.get(name, name)
    # Single-byte charsets: UTF-8 is tried first, because such text is hardly ever valid UTF-8 by chance. Multi-byte
    # charsets: the declared charset is tried first, because such text may also be valid UTF-8.
    likely = (name, "utf-8-sig") if name in _WIDE else ("utf-8-sig", name) if name in _CHARSETS else ("utf-8-sig",)
    for one in likely:
        try:
            return _SURROGATES.sub("\ufffd", content.decode(one))
        except UnicodeDecodeError:
            continue
    return _SURROGATES.sub("\ufffd", content.decode(name if name in _CHARSETS else "windows-1252", "replace"))


def unwrapped(body: bytes, encoding: str) -> bytes:
    """Decode the transfer encoding; raise ValueError if the body is truncated or not base64."""
    encoding = encoding.strip().lower()
    if encoding == "base64":
        pieces = (body[at : at + PIECE].translate(None, _WHITE) for at in range(0, len(body), PIECE))
        return pybase64.b64decode(padded(b"".join(pieces)), validate=True)
    return b"".join(_unquoted(body)) if encoding == "quoted-printable" else body


def padded(text: bytes) -> bytes:
    """Add missing base64 padding."""
    missing = -len(text) % 4
    return text + b"=" * missing if missing < 3 else text


def _unquoted(body: bytes) -> Iterator[bytes]:
    """Decode in pieces that start at an escape: a single call would block other threads."""
    at = 0
    while at < len(body):
        end = body.find(b"=", at + PIECE)
        end = len(body) if end < 0 else end
        yield a2b_qp(body[at:end])
        at = end


def without_words(text: str) -> str:
    """Decode encoded words (RFC 2047), including characters split across words, as some mailers send them."""
    if "=?" not in text:
        return text
    parts: list[str] = []
    at, charset, held = 0, "", bytearray()
    for found in _WORD.finditer(text):
        between = text[at : found.start()]
        at = found.end()
        if held and (between.strip() or charset != found[1].lower()):
            parts.append(decoded(held, charset))
            held.clear()
        if between.strip() or not charset:
            parts.append(between)
        charset = found[1].lower()
        held += _word(found[2], found[3])
    parts.append(decoded(held, charset))
    return "".join([*parts, text[at:]])


def _word(kind: str, word: str) -> bytes:
    content = word.encode("utf-8", "replace")
    if kind in "Qq":
        return a2b_qp(content.replace(b"_", b"=20"))
    try:
        return pybase64.b64decode(content.rstrip(b"=") + b"==="[: -len(content.rstrip(b"=")) % 4])
    except ValueError:
        return content


def parameters(value: str) -> dict[str, str]:
    """Return the parameters of a field such as Content-Type by lower-case name; RFC 2231 sections are joined and
    decoded.
    """
    if ";" not in value:
        return {}
    found: dict[str, str] = {}
    sections: dict[str, dict[int, tuple[bool, bytes]]] = {}
    for name, given in _PARAMETER.findall(value[:_VALUE_MAX]):
        text = re.sub(r"\\(.)", r"\1", given[1:-1]) if given.startswith('"') else given
        plain, star, rest = name.lower().partition("*")
        if not star:
            found.setdefault(plain, without_words(text))
        else:
            is_coded = not rest or rest.endswith("*")
            sections.setdefault(plain, {})[int(rest.rstrip("*") or 0)] = is_coded, text.encode("utf-8", "replace")
    return found | {name: _joined(parts) for name, parts in sections.items()}


def _joined(sections: dict[int, tuple[bool, bytes]]) -> str:
    """Join the sections; the first one, if encoded, starts with charset and language."""
    charset, whole = "", b""
    for number, (is_coded, content) in sorted(sections.items()):
        if is_coded:
            if number == 0 and content.count(b"'") >= 2:
                head, _, content = content.split(b"'", 2)
                charset = head.decode("ascii", "replace")
            content = unquote_to_bytes(content)
        whole += content
    return decoded(whole, charset)
