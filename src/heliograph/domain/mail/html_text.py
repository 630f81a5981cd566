"""Converts HTML to the plain-text part of a mail.

One pass over tokens with linear regular expressions, because the HTML is untrusted.
"""

import re
from html import unescape

READ_MAX = 512 * 1024  # characters of HTML that are converted
CUT = "[…]"

_TOKEN = re.compile(
    r"<!--.*?(?:-->|\Z)"
    r"|<(script|style|title|template|svg|iframe)\b.*?(?:</\1\s*>|\Z)"
    r"|<(?P<close>/?)(?P<tag>[a-z][a-z0-9:-]*+)(?P<attributes>(?:[^<>\"']|\"[^\"<]*\"|'[^'<]*')*+)>"
    r"|<[!?/a-z][^<>]*>",
    re.IGNORECASE | re.DOTALL,
)
_ATTRIBUTE = re.compile(r"""(?<![^\s"'/])(href|alt)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_WHITE = re.compile("[ \t\r\n\f\xa0]+")
# Includes invisible characters used as preview padding.
_BLANK = re.compile("[\\s\u00ad\u034f\u200b-\u200f\u2060\ufeff]*")
_ADDRESS = re.compile("(?:https?://|mailto:|tel:).+", re.IGNORECASE)

_LINES = frozenset("address article aside dd div dl dt figcaption footer form header li main nav section tr".split())
_PARAGRAPHS = frozenset("blockquote center figure h1 h2 h3 h4 h5 h6 hr ol p pre table ul".split())


def text_from_html(html: str) -> str:
    """Return the text; HTML above READ_MAX is truncated and marked with CUT."""
    if len(html) > READ_MAX:
        html = html[: html.rfind("<", 0, READ_MAX)] if "<" in html[:READ_MAX] else html[:READ_MAX]
        return f"{text_from_html(html)}\n{CUT}"
    page = _Page()
    at = 0
    for token in _TOKEN.finditer(html):
        page.write(html[at : token.start()])
        at = token.end()
        if tag := token["tag"]:
            page.mark(tag.lower(), bool(token["close"]), token["attributes"])
    page.write(html[at:])
    return page.text()


class _Page:
    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._due = 0  # line breaks due before the next text
        self._bullet = ""
        self._verbatim = False
        self._link: tuple[str, int] | None = None  # URL, and index of the piece where the link text starts

    def write(self, source: str) -> None:
        text = unescape(source)
        if not self._verbatim:
            text = _WHITE.sub(" ", text)
            if self._due or not self._pieces or self._pieces[-1].endswith((" ", "\n")):
                text = text.lstrip(" ")
        if text:
            self._pieces.append("\n" * self._due + self._bullet + text)
            self._due, self._bullet = 0, ""

    def mark(self, tag: str, closing: bool, attributes: str) -> None:
        if tag in _PARAGRAPHS or tag in _LINES:
            self._due = max(self._due, 2 if tag in _PARAGRAPHS else 1)
        if tag == "br":
            self._due += 1
        elif tag == "pre":
            self._verbatim = not closing
        elif tag == "a":
            self._end_link()
            self._link = None if closing else (_attribute(attributes, "href"), len(self._pieces))
        elif tag in ("td", "th") and closing:
            self.write(" ")
        elif tag == "li":
            self._bullet = "" if closing else "- "
        elif tag == "img":
            self.write(_attribute(attributes, "alt"))

    def _end_link(self) -> None:
        """Append the URL after the link text, unless the text already contains it."""
        if self._link is None:
            return
        address, start = self._link
        shown = "".join(self._pieces[start:])
        if _ADDRESS.fullmatch(address) and address.partition(":")[2].strip("/") not in shown:
            self._pieces.append(f" ({address})" if shown.strip() else address)

    def text(self) -> str:
        lines = [line.rstrip() for line in "".join(self._pieces).split("\n")]
        kept: list[str] = []
        for line in lines:
            line = "" if _BLANK.fullmatch(line) else line
            if line or (kept and kept[-1]):
                kept.append(line)
        return "\n".join(kept).rstrip("\n")


def _attribute(attributes: str, name: str) -> str:
    for found in _ATTRIBUTE.finditer(attributes):
        if found[1].lower() == name:
            return _WHITE.sub(" ", unescape(found[2] or found[3] or found[4] or "")).strip()
    return ""
