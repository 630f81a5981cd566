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
LOOKED_AT = 512 * KIB  # characters of a body that are searched
LINK_MAX = 2048  # characters; some clients truncate longer links
Verdict = Literal["ok", "warning", "wrong"]

# Isolated digits: one group, or two groups of three. Excludes dates, prices, phone numbers and parts of words.
_CODE = re.compile(r"(?<![\w#/.,:+€$£-])(\d{4,8}|\d{3}[ -]\d{3})(?![\w/€$£%-]|[.,:]\d)")
_NEAR = re.compile(r"\b(?:code|pin|otp|passcode|password|token|verification|verify|kod|código|codice|kode)\b", re.I)
_NEAR_CHARACTERS = 80  # maximum distance between the keyword and the code
_HREF = re.compile(r"""<a\s[^<>]{0,2048}?href\s*=\s*(?:"([^"]{0,4096})"|'([^']{0,4096})'|([^\s>"']{1,4096}))""", re.I)
_URL = re.compile(r"https?://[^\s<>\"'`\]}]{1,4096}")
_TAG = re.compile(r"<[^<>]{0,4096}>")
_HIDDEN = re.compile(r"<(style|script|head)\b", re.I)


class CheckedLink(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    verdict: Verdict = "ok"
    why: str = ""  # what is wrong with the link


def find_code(text: str) -> str | None:
    """Return the one-time code in a text: digits near a keyword, otherwise the only six digits; None if not found."""
    text = text[:LOOKED_AT]
    found = list(_CODE.finditer(text))
    words = [match.start() for match in _NEAR.finditer(text)]
    near = [one for one in found if _has_near(words, one.start())]
    # Prefer codes after the keyword, then codes of six digits.
    near.sort(key=lambda one: (one.start() < words[0], len(_digits(one[1])) != 6, one.start()))
    six = [one for one in found if len(_digits(one[1])) == 6]
    best = near[0] if near else six[0] if len(six) == 1 else None
    return _digits(best[1]) if best else None


def _has_near(places: list[int], at: int) -> bool:
    """Return whether one of the sorted positions is within _NEAR_CHARACTERS of `at`."""
    first = bisect_left(places, at - _NEAR_CHARACTERS)
    return first < len(places) and places[first] <= at + _NEAR_CHARACTERS


def code_in(subject: str | None, text: str | None, html: str | None) -> str | None:
    """Return the code from the subject, the text or the readable HTML of a message; None if not found."""
    in_words = next((code for part in (subject, text) if part and (code := find_code(part))), None)
    return in_words or (find_code(readable(html)) if html else None)


def _digits(text: str) -> str:
    return text.replace(" ", "").replace("-", "")


def readable(html: str) -> str:
    """Return the approximate text of an HTML body, sufficient to find a code."""
    html = html[:LOOKED_AT]
    parts, at = [], 0
    while hidden := _HIDDEN.search(html, at):  # linear: each search continues where the last one ended
        parts.append(html[at : hidden.start()])
        end = html.lower().find(f"</{hidden[1].lower()}", hidden.end()) if len(parts) < 50 else -1
        at = len(html) if end < 0 else end
        if end < 0:
            break
    parts.append(html[at:])
    return " ".join(unescape(_TAG.sub(" ", " ".join(parts))).split())


def find_links(html: str | None, text: str | None) -> list[str]:
    """Return the distinct links in order, from the HTML if present, otherwise from the text."""
    if html:
        found = [unescape(next(filter(None, match.groups()), "")).strip() for match in _HREF.finditer(html[:LOOKED_AT])]
    else:
        found = [match[0].rstrip(".,;:!?)'\"") for match in _URL.finditer((text or "")[:LOOKED_AT])]
    return list(dict.fromkeys(found))[:LINKS_MAX]


def first_link(links: list[str]) -> str | None:
    return next((link for link in links if link.startswith(("http://", "https://"))), None)


def check_link(url: str) -> CheckedLink:
    """Validate a link by its syntax alone."""
    if not url or url.startswith("#"):
        return CheckedLink(url=url, verdict="warning", why="Leads nowhere: mail clients have no page to jump in.")
    if "{{" in unquote(url) or "}}" in unquote(url):
        return CheckedLink(url=url, verdict="wrong", why="Holds a placeholder that was not filled in.")
    if re.search(r"[\s<>]", url):
        return CheckedLink(url=url, verdict="wrong", why="Holds a space or an angle bracket: write %20, %3C, %3E.")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return CheckedLink(url=url, verdict="wrong", why="Is not an address: its host or port cannot be read.")
    scheme = parts.scheme.lower()
    if scheme in ("mailto", "tel", "sms"):
        wrong = "" if parts.path else f"{scheme}: without an address."
        return CheckedLink(url=url, verdict="wrong" if wrong else "ok", why=wrong)
    if not scheme:
        return CheckedLink(url=url, verdict="wrong", why="Is relative: in a mail there is no page it could belong to.")
    if scheme not in ("http", "https"):
        return CheckedLink(url=url, verdict="wrong", why=f"Mail clients do not open {scheme}: addresses.")
    if not host:
        return CheckedLink(url=url, verdict="wrong", why="Has no host.")
    return _judged(url, scheme, host)


def _judged(url: str, scheme: str, host: str) -> CheckedLink:
    """Return warnings for a valid link: length, private host, missing encryption."""
    if len(url) > LINK_MAX:
        return CheckedLink(
            url=url, verdict="warning", why=f"Has {len(url)} characters: some clients cut at {LINK_MAX}."
        )
    if _is_private(host):
        return CheckedLink(
            url=url, verdict="warning", why=f"{host} is not on the internet: your recipients cannot open it."
        )
    if scheme == "http":
        return CheckedLink(url=url, verdict="warning", why="Is not encrypted: use https.")
    return CheckedLink(url=url)


def _is_private(host: str) -> bool:
    if host == "localhost" or host.endswith((".localhost", ".local", ".internal", ".test", ".example", ".invalid")):
        return True
    try:
        return not ip_address(host).is_global
    except ValueError:
        return "." not in host
