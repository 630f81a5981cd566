"""Detects HTML and CSS features that common mail clients do not support, from a static table and without rendering.

The table has about thirty features of five clients, compared with SOURCE at AS_OF. Other features may fail too: test
the mail in the clients that matter.
"""

import re
from bisect import bisect
from collections.abc import Iterator
from itertools import accumulate
from typing import Literal

import msgspec

from heliograph.domain.limits import KIB

AS_OF, SOURCE = "2026-06-29", "https://www.caniemail.com"
LOOKED_AT = 512 * KIB  # characters of a mail that are examined
GMAIL_CLIPS = 102 * KIB  # bytes of HTML above which Gmail clips a mail
Client = Literal["Gmail", "Outlook for Windows", "Outlook.com", "Apple Mail", "Yahoo Mail"]
Where = Literal["html", "css"]
Harm = Literal["lost", "different"]
ALL: tuple[Client, ...] = ("Gmail", "Outlook for Windows", "Outlook.com", "Apple Mail", "Yahoo Mail")
_GMAIL: Client = "Gmail"
_WORD: Client = "Outlook for Windows"  # renders mail with Word
_WEB: Client = "Outlook.com"
_YAHOO: Client = "Yahoo Mail"
_MOST, _THREE = (_GMAIL, _WORD, _WEB, _YAHOO), (_GMAIL, _WORD, _WEB)


class HtmlFeature(msgspec.Struct, frozen=True):
    name: str
    where: Where  # where to search: HTML or CSS
    pattern: str
    clients: tuple[Client, ...]  # clients that do not support the feature
    harm: Harm  # whether content is lost or only looks different
    advice: str


class HtmlFinding(msgspec.Struct, frozen=True):
    feature: HtmlFeature
    times: int


def _css(name: str, pattern: str, clients: tuple[Client, ...], advice: str) -> HtmlFeature:
    return HtmlFeature(name, "css", pattern, clients, "different", advice)


def _html(name: str, pattern: str, clients: tuple[Client, ...], advice: str, harm: Harm = "lost") -> HtmlFeature:
    return HtmlFeature(name, "html", pattern, clients, harm, advice)


NO_ALT = _html(
    "a picture without alt text",
    r"<img\b(?![^<>]{0,2000}\balt\s*=)",
    ALL,
    "Say what it shows: many readers block pictures.",
)
FEATURES = (
    _html("<script>", r"<script\b", ALL, "Remove it: no mail client runs scripts."),
    _html("<link> to a style sheet", r"<link\b[^<>]{0,500}stylesheet", ALL, "Write the styles into the mail."),
    _html("<iframe>, <object>, <embed>", r"<(?:iframe|object|embed)\b", ALL, "Link to the page instead."),
    _html(
        "<form> and its fields", r"<(?:form|input|select|textarea)\b", (_WORD, _WEB), "Link to a page with the form."
    ),
    _html("<video> or <audio>", r"<(?:video|audio)\b", _MOST, "Show a picture that links to it."),
    _html("<svg> in the mail", r"<svg\b", _MOST, "Use a PNG."),
    _html("an SVG picture", r"<img\b[^<>]{0,500}\.svg\b", (_GMAIL,), "Use a PNG."),
    _html("a WebP picture", r"<img\b[^<>]{0,500}\.webp\b", (_WORD,), "Use a PNG or JPEG."),
    _html(
        "a picture in a data: address",
        r"<img\b[^<>]{0,500}src\s*=\s*[\"']?data:",
        (_GMAIL, _WORD),
        "Attach it, or link to it by https.",
    ),
    NO_ALT,
    _html(
        "a picture without a width",
        r"<img\b(?![^<>]{0,2000}\bwidth\s*=)",
        (_WORD,),
        "Give it a width attribute: else it has its full size.",
        "different",
    ),
    _html(
        "<picture> and srcset",
        r"<picture\b|\bsrcset\s*=",
        _MOST,
        "The <img> inside is shown: let it be good enough.",
        "different",
    ),
    _html("<base>", r"<base\b", (_GMAIL, _WEB, _YAHOO), "Write whole addresses into the links."),
    _css("display: grid", r"display\s*:\s*(?:inline-)?grid\b", _MOST, "Lay out with tables."),
    _css("display: flex", r"display\s*:\s*(?:inline-)?flex\b", (_WORD, _YAHOO), "Lay out with tables."),
    _css("position", r"position\s*:\s*(?:absolute|fixed|sticky|relative)\b", _MOST, "Let it flow."),
    _css("float", r"float\s*:\s*(?:left|right)\b", (_WORD,), "Use table cells or the align attribute."),
    _css(
        "a background picture", r"background(?:-image)?\s*:[^;]{0,500}url\(", (_WORD,), "Set a background colour too."
    ),
    _css("a gradient", r"(?:linear|radial|conic)-gradient\(", (_WORD, _WEB, _YAHOO), "Set a background colour too."),
    _css("border-radius", r"border-radius\s*:", (_WORD,), "Corners are square there: let it look right so."),
    _css("box-shadow, text-shadow", r"(?:box|text)-shadow\s*:", _THREE, "Let it look right without."),
    _css("max-width", r"max-width\s*:(?![^{}]{0,80}\{)", (_WORD,), "Give the outer table a width attribute."),
    _css("@media", r"@media\b", (_WORD,), "Let the mail be readable without: there it has its desktop layout."),
    _css(
        "prefers-color-scheme",
        r"prefers-color-scheme",
        (_GMAIL, _WORD, _YAHOO),
        "They colour dark mode by themselves: look at it.",
    ),
    _css("a web font", r"@font-face\b|@import\b", _MOST, "Name a font that everybody has behind it."),
    _css(
        "an animation",
        r"@keyframes\b|animation(?:-name)?\s*:|transition\s*:",
        _MOST,
        "Let it look right standing still.",
    ),
    _css("a CSS variable", r"var\(\s*--", _MOST, "Write the value itself."),
    _css("calc()", r"\bcalc\(", (_WORD, _WEB, _YAHOO), "Write the value itself."),
    _css("rgba() and hsl()", r"\b(?:rgba|hsla?)\(", (_WORD,), "Write colours as #rrggbb."),
    _css(
        "opacity, transform, filter",
        r"(?:opacity|transform|filter|clip-path)\s*:",
        _THREE,
        "Let it look right without.",
    ),
    _css("rem, vw and vh", r":\s*[\d.]+(?:rem|vw|vh)\b", (_WORD,), "Write sizes in px."),
    _css(":hover", r":hover\b", (_WORD, _WEB), "Nothing may depend on it: phones have none."),
)
CLIPPED = HtmlFeature(
    "more than 102 KB of HTML",
    "html",
    "",
    (_GMAIL,),
    "lost",
    "Gmail shows the first 102 KB and a link to the rest. Shorten it.",
)

_PATTERNS = [(feature, re.compile(feature.pattern, re.I)) for feature in FEATURES]
_STYLE = re.compile(r"""\bstyle\s*=\s*(?:"([^"]{0,8192})"|'([^']{0,8192})')""", re.I)
_BLOCK = re.compile(r"<style\b[^<>]{0,1000}>", re.I)


def check_html(html: str) -> list[HtmlFinding]:
    """Return the unsupported features found: lost content first, then by number of affected clients."""
    searched = html[:LOOKED_AT]
    texts: dict[Where, str] = {"html": searched, "css": "\n".join(text for _, text in _css_of(searched))}
    found = [HtmlFinding(feature, len(pattern.findall(texts[feature.where]))) for feature, pattern in _PATTERNS]
    if len(html.encode("utf-8", "replace")) > GMAIL_CLIPS:
        found.append(HtmlFinding(CLIPPED, 1))
    return sorted((one for one in found if one.times), key=_weight)


def first_findings(html: str) -> Iterator[tuple[HtmlFeature, int]]:
    """Yield each unsupported feature and its first offset.

    Images without alt text are excluded, because they are no matter of client support.
    """
    searched = html[:LOOKED_AT]
    styles = list(_css_of(searched))
    css = "\n".join(text for _, text in styles)
    begins = list(accumulate((len(text) + 1 for _, text in styles), initial=0))  # offset of each style in `css`
    for feature, pattern in _PATTERNS:
        if feature is NO_ALT:
            continue
        if found := pattern.search(searched if feature.where == "html" else css):
            at = found.start()
            if feature.where == "css":
                style = bisect(begins, at) - 1
                at = styles[style][0] + at - begins[style]
            yield feature, at


def _weight(one: HtmlFinding) -> tuple[bool, int]:
    return one.feature.harm != "lost", -len(one.feature.clients)


def _css_of(html: str) -> Iterator[tuple[int, str]]:
    """Yield (offset, CSS) of each style attribute and style block."""
    for found in _STYLE.finditer(html):
        which = 1 if found[1] is not None else 2
        yield found.start(which), found[which]
    lower, at = html.lower(), 0
    while block := _BLOCK.search(html, at):
        at = lower.find("</style", block.end())
        at = len(html) if at < 0 else at
        yield block.end(), html[block.end() : at]
