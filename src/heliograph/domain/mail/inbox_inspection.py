"""Finds the code and the links in a captured message, and validates the links without network access."""

import re
from bisect import bisect_left
from html import unescape
from ipaddress import ip_address
from typing import Literal
from urllib.parse import unquote, urlsplit

import msgspec

from heliograph.domain.limits import KIB

LINKS_MAX = 100
SEARCHED_MAX = 512 * KIB  # maximum characters of a body that are searched
LINK_LENGTH_MAX = 2048  # characters; some clients truncate longer links
Verdict = Literal["ok", "warning", "wrong"]

# Isolated digits: one group, or two groups of three. Excludes dates, prices, phone numbers and parts of words.
_CODE = re.compile(r"(?<![\w#/.,:+€$£-])(\d{4,8}|\d{3}[ -]\d{3})(?![\w/€$£%-]|[.,:]\d)")
_CODE_KEYWORD = re.compile(
    r"\b(?:code|pin|otp|passcode|password|token|verification|verify|kod|código|codice|kode)\b", re.I
)
_KEYWORD_DISTANCE_MAX = 80  # maximum distance between the keyword and the code
_HREF = re.compile(r"""<a\s[^<>]{0,2048}?href\s*=\s*(?:"([^"]{0,4096})"|'([^']{0,4096})'|([^\s>"']{1,4096}))""", re.I)
_URL = re.compile(r"https?://[^\s<>\"'`\]}]{1,4096}")
_TAG = re.compile(r"<[^<>]{0,4096}>")
_HIDDEN = re.compile(r"<(style|script|head)\b", re.I)


class CheckedLink(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    verdict: Verdict = "ok"
    why: str = ""  # what is wrong with the link


def find_code(text: str) -> str | None:
    """Return the one-time code in a text: digits near a keyword, or else the only group of six digits; else None."""
    text = text[:SEARCHED_MAX]
    matches = list(_CODE.finditer(text))
    keyword_positions = [match.start() for match in _CODE_KEYWORD.finditer(text)]
    near_keyword = [candidate for candidate in matches if _is_near_keyword(keyword_positions, candidate.start())]
    # Prefer codes after the keyword, then codes of six digits.
    near_keyword.sort(
        key=lambda candidate: (
            candidate.start() < keyword_positions[0],
            len(_only_digits(candidate[1])) != 6,
            candidate.start(),
        )
    )
    six_digits = [candidate for candidate in matches if len(_only_digits(candidate[1])) == 6]
    best = near_keyword[0] if near_keyword else six_digits[0] if len(six_digits) == 1 else None
    return _only_digits(best[1]) if best else None


def _is_near_keyword(positions: list[int], position: int) -> bool:
    """Return whether one of the sorted positions is within _KEYWORD_DISTANCE_MAX of `position`."""
    first = bisect_left(positions, position - _KEYWORD_DISTANCE_MAX)
    return first < len(positions) and positions[first] <= position + _KEYWORD_DISTANCE_MAX


def find_message_code(subject: str | None, text: str | None, html: str | None) -> str | None:
    """Return the code from the subject, the text or the readable HTML of a message; None if not found."""
    text_code = next((code for part in (subject, text) if part and (code := find_code(part))), None)
    return text_code or (find_code(html_to_text(html)) if html else None)


def _only_digits(text: str) -> str:
    return text.replace(" ", "").replace("-", "")


def html_to_text(html: str) -> str:
    """Return the approximate text of an HTML body, sufficient to find a code."""
    html = html[:SEARCHED_MAX]
    parts, position = [], 0
    while hidden := _HIDDEN.search(html, position):  # linear: each search continues where the last one ended
        parts.append(html[position : hidden.start()])
        end = html.lower().find(f"</{hidden[1].lower()}", hidden.end()) if len(parts) < 50 else -1
        position = len(html) if end < 0 else end
        if end < 0:
            break
    parts.append(html[position:])
    return " ".join(unescape(_TAG.sub(" ", " ".join(parts))).split())


def find_links(html: str | None, text: str | None) -> list[str]:
    """Return the distinct links in order, from the HTML if present, otherwise from the text."""
    if html:
        links = [
            unescape(next(filter(None, match.groups()), "")).strip() for match in _HREF.finditer(html[:SEARCHED_MAX])
        ]
    else:
        links = [match[0].rstrip(".,;:!?)'\"") for match in _URL.finditer((text or "")[:SEARCHED_MAX])]
    return list(dict.fromkeys(links))[:LINKS_MAX]


def first_link(links: list[str]) -> str | None:
    return next((link for link in links if link.startswith(("http://", "https://"))), None)


def check_link(url: str) -> CheckedLink:
    """Validate a link by its syntax alone, without network access."""
    verdict, why = _judge_link(url)
    return CheckedLink(url=url, verdict=verdict, why=why)


def _judge_link(url: str) -> tuple[Verdict, str]:
    """Return whether a link is ok, suspicious or wrong, and the problem as a text."""
    if not url or url.startswith("#"):
        return "warning", "Doesn't lead anywhere: page anchors don't work in email."
    if "{{" in unquote(url) or "}}" in unquote(url):
        return "wrong", "Contains a placeholder that was not filled in."
    if re.search(r"[\s<>]", url):
        return "wrong", "Contains a space or angle bracket. Use %20, %3C or %3E."
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return "wrong", "Is not a valid URL: check its host and port."
    scheme = parts.scheme.lower()
    if scheme in ("mailto", "tel", "sms"):
        return ("ok", "") if parts.path else ("wrong", f"{scheme}: link without an address.")
    if not scheme:
        return "wrong", "Is a relative URL, which doesn't work in email."
    if scheme not in ("http", "https"):
        return "wrong", f"Email clients don't open {scheme}: links."
    if not host:
        return "wrong", "Has no host name."
    return _judge_valid_link(url, scheme, host)


def _judge_valid_link(url: str, scheme: str, host: str) -> tuple[Verdict, str]:
    """Judge a link with valid syntax by length, host and encryption; the result has the form of `_judge_link`'s."""
    if len(url) > LINK_LENGTH_MAX:
        return "warning", f"Has {len(url)} characters: some clients cut links off at {LINK_LENGTH_MAX}."
    if _is_private(host):
        return "warning", f"{host} is not a public host. Recipients can't open this link."
    return ("warning", "Is not encrypted. Use https.") if scheme == "http" else ("ok", "")


def _is_private(host: str) -> bool:
    if host == "localhost" or host.endswith((".localhost", ".local", ".internal", ".test", ".example", ".invalid")):
        return True
    try:
        return not ip_address(host).is_global
    except ValueError:
        return "." not in host
