"""Converts untrusted HTML to the plain-text part of a mail, in one pass with linear regular expressions."""

import re
from html import unescape

CONVERTED_MAX = 512 * 1024  # maximum characters of HTML that are converted; the rest is ignored
TRUNCATION_MARK = "[…]"

_TOKEN = re.compile(
    r"<!--.*?(?:-->|\Z)"
    r"|<(script|style|title|template|svg|iframe)\b.*?(?:</\1\s*>|\Z)"
    r"|<(?P<close>/?)(?P<tag>[a-z][a-z0-9:-]*+)(?P<attributes>(?:[^<>\"']|\"[^\"<]*\"|'[^'<]*')*+)>"
    r"|<[!?/a-z][^<>]*>",
    re.IGNORECASE | re.DOTALL,
)
_ATTRIBUTE = re.compile(r"""(?<![^\s"'/])(href|alt)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_WHITESPACE = re.compile("[ \t\r\n\f\xa0]+")
# Includes invisible characters used as preview padding.
_BLANK_LINE = re.compile("[\\s\u00ad\u034f\u200b-\u200f\u2060\ufeff]*")
_LINK_URL = re.compile("(?:https?://|mailto:|tel:).+", re.IGNORECASE)

_LINE_TAGS = frozenset(
    "address article aside dd div dl dt figcaption footer form header li main nav section tr".split()
)
_PARAGRAPH_TAGS = frozenset("blockquote center figure h1 h2 h3 h4 h5 h6 hr ol p pre table ul".split())


def html_to_plain_text(html: str) -> str:
    """Return the HTML's text. HTML above CONVERTED_MAX is truncated, and TRUNCATION_MARK is appended."""
    if len(html) > CONVERTED_MAX:
        html = html[: html.rfind("<", 0, CONVERTED_MAX)] if "<" in html[:CONVERTED_MAX] else html[:CONVERTED_MAX]
        return f"{html_to_plain_text(html)}\n{TRUNCATION_MARK}"
    builder = _TextBuilder()
    position = 0
    for token in _TOKEN.finditer(html):
        builder.add_text(html[position : token.start()])
        position = token.end()
        if tag := token["tag"]:
            builder.add_tag(tag.lower(), bool(token["close"]), token["attributes"])
    builder.add_text(html[position:])
    return builder.build()


class _TextBuilder:
    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._pending_breaks = 0  # line breaks due before the next text
        self._bullet = ""
        self._preformatted = False
        self._link: tuple[str, int] | None = None  # URL, and index of the piece where the link text starts

    def add_text(self, source: str) -> None:
        text = unescape(source)
        if not self._preformatted:
            text = _WHITESPACE.sub(" ", text)
            if self._pending_breaks or not self._pieces or self._pieces[-1].endswith((" ", "\n")):
                text = text.lstrip(" ")
        if text:
            self._pieces.append("\n" * self._pending_breaks + self._bullet + text)
            self._pending_breaks, self._bullet = 0, ""

    def add_tag(self, tag: str, closing: bool, attributes: str) -> None:
        if tag in _PARAGRAPH_TAGS or tag in _LINE_TAGS:
            self._pending_breaks = max(self._pending_breaks, 2 if tag in _PARAGRAPH_TAGS else 1)
        if tag == "br":
            self._pending_breaks += 1
        elif tag == "pre":
            self._preformatted = not closing
        elif tag == "a":
            self._end_link()
            self._link = None if closing else (_attribute_value(attributes, "href"), len(self._pieces))
        elif tag in ("td", "th") and closing:
            self.add_text(" ")
        elif tag == "li":
            self._bullet = "" if closing else "- "
        elif tag == "img":
            self.add_text(_attribute_value(attributes, "alt"))

    def _end_link(self) -> None:
        """Append the URL after the link text, unless the text already contains it."""
        if self._link is None:
            return
        url, start = self._link
        link_text = "".join(self._pieces[start:])
        if _LINK_URL.fullmatch(url) and url.partition(":")[2].strip("/") not in link_text:
            self._pieces.append(f" ({url})" if link_text.strip() else url)

    def build(self) -> str:
        lines = [line.rstrip() for line in "".join(self._pieces).split("\n")]
        result: list[str] = []
        for line in lines:
            line = "" if _BLANK_LINE.fullmatch(line) else line
            if line or (result and result[-1]):
                result.append(line)
        return "\n".join(result).rstrip("\n")


def _attribute_value(attributes: str, name: str) -> str:
    for match in _ATTRIBUTE.finditer(attributes):
        if match[1].lower() == name:
            return _WHITESPACE.sub(" ", unescape(match[2] or match[3] or match[4] or "")).strip()
    return ""
