"""Detects HTML and CSS features that common mail clients do not support, from a static table and without rendering.

The table has about thirty features of five clients, compared with SOURCE at AS_OF. Other features may fail too, so test
the mail in the important clients.
"""

import re
from bisect import bisect
from collections.abc import Iterator
from itertools import accumulate
from typing import Literal

import msgspec

from heliograph.domain.limits import KIB

AS_OF, SOURCE = "2026-06-29", "https://www.caniemail.com"
EXAMINED_MAX = 512 * KIB  # characters of a mail that are examined
GMAIL_CLIP_OCTETS = 102 * KIB  # bytes of HTML above which Gmail clips a mail
Client = Literal["Gmail", "Outlook for Windows", "Outlook.com", "Apple Mail", "Yahoo Mail"]
FeatureSyntax = Literal["html", "css"]
Severity = Literal["lost", "different"]
ALL_CLIENTS: tuple[Client, ...] = ("Gmail", "Outlook for Windows", "Outlook.com", "Apple Mail", "Yahoo Mail")
_GMAIL: Client = "Gmail"
_OUTLOOK_WINDOWS: Client = "Outlook for Windows"  # renders mail with Word
_OUTLOOK_WEB: Client = "Outlook.com"
_YAHOO: Client = "Yahoo Mail"
_GMAIL_AND_OUTLOOK = (_GMAIL, _OUTLOOK_WINDOWS, _OUTLOOK_WEB)
_ALL_BUT_APPLE = (*_GMAIL_AND_OUTLOOK, _YAHOO)


class HtmlFeature(msgspec.Struct, frozen=True):
    name: str
    syntax: FeatureSyntax  # where to search: HTML or CSS
    pattern: str
    clients: tuple[Client, ...]  # clients that do not support the feature
    severity: Severity  # whether content is missing or only looks different
    advice: str


class HtmlFinding(msgspec.Struct, frozen=True):
    feature: HtmlFeature
    count: int


def _css_feature(name: str, pattern: str, clients: tuple[Client, ...], advice: str) -> HtmlFeature:
    return HtmlFeature(name, "css", pattern, clients, "different", advice)


def _html_feature(
    name: str, pattern: str, clients: tuple[Client, ...], advice: str, severity: Severity = "lost"
) -> HtmlFeature:
    return HtmlFeature(name, "html", pattern, clients, severity, advice)


NO_ALT = _html_feature(
    "an image without alt text",
    r"<img\b(?![^<>]{0,2000}\balt\s*=)",
    ALL_CLIENTS,
    "Describe the image: many people block images.",
)
FEATURES = (
    _html_feature("<script>", r"<script\b", ALL_CLIENTS, "Remove it: no mail client runs scripts."),
    _html_feature(
        "<link> to a style sheet", r"<link\b[^<>]{0,500}stylesheet", ALL_CLIENTS, "Include the styles in the email."
    ),
    _html_feature(
        "<iframe>, <object>, <embed>", r"<(?:iframe|object|embed)\b", ALL_CLIENTS, "Link to the page instead."
    ),
    _html_feature(
        "<form> and its fields",
        r"<(?:form|input|select|textarea)\b",
        (_OUTLOOK_WINDOWS, _OUTLOOK_WEB),
        "Link to a page with the form.",
    ),
    _html_feature("<video> or <audio>", r"<(?:video|audio)\b", _ALL_BUT_APPLE, "Use an image that links to it."),
    _html_feature("inline <svg>", r"<svg\b", _ALL_BUT_APPLE, "Use a PNG."),
    _html_feature("an SVG image", r"<img\b[^<>]{0,500}\.svg\b", (_GMAIL,), "Use a PNG."),
    _html_feature("a WebP image", r"<img\b[^<>]{0,500}\.webp\b", (_OUTLOOK_WINDOWS,), "Use a PNG or JPEG."),
    _html_feature(
        "an image in a data: URL",
        r"<img\b[^<>]{0,500}src\s*=\s*[\"']?data:",
        (_GMAIL, _OUTLOOK_WINDOWS),
        "Attach the image, or use an https URL.",
    ),
    NO_ALT,
    _html_feature(
        "an image without a width",
        r"<img\b(?![^<>]{0,2000}\bwidth\s*=)",
        (_OUTLOOK_WINDOWS,),
        "Add a width attribute, or it is shown in full size.",
        "different",
    ),
    _html_feature(
        "<picture> and srcset",
        r"<picture\b|\bsrcset\s*=",
        _ALL_BUT_APPLE,
        "Only the <img> inside is shown: make sure it works alone.",
        "different",
    ),
    _html_feature("<base>", r"<base\b", (_GMAIL, _OUTLOOK_WEB, _YAHOO), "Use full URLs in links."),
    _css_feature("display: grid", r"display\s*:\s*(?:inline-)?grid\b", _ALL_BUT_APPLE, "Use tables for the layout."),
    _css_feature(
        "display: flex", r"display\s*:\s*(?:inline-)?flex\b", (_OUTLOOK_WINDOWS, _YAHOO), "Use tables for the layout."
    ),
    _css_feature(
        "position",
        r"position\s*:\s*(?:absolute|fixed|sticky|relative)\b",
        _ALL_BUT_APPLE,
        "Use the normal document flow.",
    ),
    _css_feature(
        "float", r"float\s*:\s*(?:left|right)\b", (_OUTLOOK_WINDOWS,), "Use table cells or the align attribute."
    ),
    _css_feature(
        "a background image",
        r"background(?:-image)?\s*:[^;]{0,500}url\(",
        (_OUTLOOK_WINDOWS,),
        "Also set a background color.",
    ),
    _css_feature(
        "a gradient",
        r"(?:linear|radial|conic)-gradient\(",
        (_OUTLOOK_WINDOWS, _OUTLOOK_WEB, _YAHOO),
        "Also set a background color.",
    ),
    _css_feature(
        "border-radius",
        r"border-radius\s*:",
        (_OUTLOOK_WINDOWS,),
        "Corners are square there: make sure that looks right.",
    ),
    _css_feature(
        "box-shadow, text-shadow",
        r"(?:box|text)-shadow\s*:",
        _GMAIL_AND_OUTLOOK,
        "Make sure it looks right without it.",
    ),
    _css_feature(
        "max-width", r"max-width\s*:(?![^{}]{0,80}\{)", (_OUTLOOK_WINDOWS,), "Add a width attribute to the outer table."
    ),
    _css_feature("@media", r"@media\b", (_OUTLOOK_WINDOWS,), "Make sure the desktop layout is readable there."),
    _css_feature(
        "prefers-color-scheme",
        r"prefers-color-scheme",
        (_GMAIL, _OUTLOOK_WINDOWS, _YAHOO),
        "They apply their own dark mode colors: check the result.",
    ),
    _css_feature("a web font", r"@font-face\b|@import\b", _ALL_BUT_APPLE, "Add a common fallback font."),
    _css_feature(
        "an animation",
        r"@keyframes\b|animation(?:-name)?\s*:|transition\s*:",
        _ALL_BUT_APPLE,
        "Make sure it looks right without animation.",
    ),
    _css_feature("a CSS variable", r"var\(\s*--", _ALL_BUT_APPLE, "Use the value directly."),
    _css_feature("calc()", r"\bcalc\(", (_OUTLOOK_WINDOWS, _OUTLOOK_WEB, _YAHOO), "Use the value directly."),
    _css_feature("rgba() and hsl()", r"\b(?:rgba|hsla?)\(", (_OUTLOOK_WINDOWS,), "Use #rrggbb colors."),
    _css_feature(
        "opacity, transform, filter",
        r"(?:opacity|transform|filter|clip-path)\s*:",
        _GMAIL_AND_OUTLOOK,
        "Make sure it looks right without it.",
    ),
    _css_feature("rem, vw and vh", r":\s*[\d.]+(?:rem|vw|vh)\b", (_OUTLOOK_WINDOWS,), "Use px sizes."),
    _css_feature(":hover", r":hover\b", (_OUTLOOK_WINDOWS, _OUTLOOK_WEB), "Don't rely on it: phones don't have it."),
)
CLIPPED = HtmlFeature(
    "more than 102 KB of HTML",
    "html",
    "",
    (_GMAIL,),
    "lost",
    "Gmail cuts off email after 102 KB. Shorten it.",
)

_FEATURE_PATTERNS = [(feature, re.compile(feature.pattern, re.I)) for feature in FEATURES]
_STYLE_ATTRIBUTE = re.compile(r"""\bstyle\s*=\s*(?:"([^"]{0,8192})"|'([^']{0,8192})')""", re.I)
_STYLE_BLOCK = re.compile(r"<style\b[^<>]{0,1000}>", re.I)


def find_unsupported_features(html: str) -> list[HtmlFinding]:
    """Return the features in the HTML that mail clients do not support.

    Features that lose content come first, then those that affect the most clients.
    """
    examined = html[:EXAMINED_MAX]
    text_by_syntax: dict[FeatureSyntax, str] = {
        "html": examined,
        "css": "\n".join(text for _, text in _find_css(examined)),
    }
    findings = [
        HtmlFinding(feature, len(pattern.findall(text_by_syntax[feature.syntax])))
        for feature, pattern in _FEATURE_PATTERNS
    ]
    if len(html.encode("utf-8", "replace")) > GMAIL_CLIP_OCTETS:
        findings.append(HtmlFinding(CLIPPED, 1))
    unsupported = [finding for finding in findings if finding.count]
    return sorted(unsupported, key=lambda finding: (finding.feature.severity != "lost", -len(finding.feature.clients)))


def first_unsupported_features(html: str) -> Iterator[tuple[HtmlFeature, int]]:
    """Yield each unsupported feature and its first offset, except images without alt text, which clients support."""
    examined = html[:EXAMINED_MAX]
    styles = list(_find_css(examined))
    css = "\n".join(text for _, text in styles)
    style_offsets = list(accumulate((len(text) + 1 for _, text in styles), initial=0))  # offset of each style in `css`
    for feature, pattern in _FEATURE_PATTERNS:
        if feature is NO_ALT:
            continue
        if match := pattern.search(examined if feature.syntax == "html" else css):
            offset = match.start()
            if feature.syntax == "css":
                style = bisect(style_offsets, offset) - 1
                offset = styles[style][0] + offset - style_offsets[style]
            yield feature, offset


def _find_css(html: str) -> Iterator[tuple[int, str]]:
    """Yield (offset, CSS) of each style attribute and style block."""
    for match in _STYLE_ATTRIBUTE.finditer(html):
        group = 1 if match[1] is not None else 2
        yield match.start(group), match[group]
    lower, offset = html.lower(), 0
    while block := _STYLE_BLOCK.search(html, offset):
        offset = lower.find("</style", block.end())
        offset = len(html) if offset < 0 else offset
        yield block.end(), html[block.end() : offset]
