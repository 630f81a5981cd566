"""Rendering: the pieces of a template with a caller's values, joined once their length is known."""

import re
from collections.abc import Callable, Iterable
from functools import cache

import msgspec

from heliograph.rules.limits import SUBJECT_OCTETS_MAX
from heliograph.rules.refusals import InvalidSubject
from heliograph.rules.setup.records import Template
from heliograph.rules.templates.markup import SAFE_ADDRESS
from heliograph.rules.templates.source import Slot, UrlAttribute, compiled
from heliograph.rules.templates.values import check_size, with_fallback

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # Unicode categories Cc, Zl and Zp
PARTS = ("subject", "html", "text", "body")


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    subject: str | None
    html: str | None
    text: str | None
    body: str | None


def render(template: Template, values: dict[str, str], brand: dict[str, str]) -> Rendered:
    """Values that are absent render empty; whether that is allowed is decided by `check_variables`.

    Nothing is joined before its length is known: a value can stand in a template thousands of times.
    """
    values = with_fallback(template, values)
    fill = cache(lambda slot: _measured(slot.fill(values, brand)))
    parts = {
        part: [_filled(piece, fill) for piece in compiled(source, part == "html").pieces]
        for part in PARTS
        if (source := getattr(template, part)) is not None
    }
    sizes = {part: sum(size for _, size in pieces) for part, pieces in parts.items()}
    check_size(sizes.get("html", 0) + sizes.get("text", 0), "rendered html and text have", param="variables")
    check_size(sizes.get("body", 0), "rendered body has", param="variables")
    check_size(sizes.get("subject", 0), "rendered subject has", param="variables", most=SUBJECT_OCTETS_MAX)
    joined = {part: "".join([_one(text) for text, _ in pieces]) for part, pieces in parts.items()}
    return Rendered(**dict.fromkeys(PARTS) | joined)


def most_octets(template: Template, values: Iterable[str]) -> int:
    """What it becomes with these values at most, roughly: known in a moment, however often they stand in it."""
    longest = max(map(len, values), default=0)
    sources = [source for part in PARTS if (source := getattr(template, part))]
    return sum(len(source) + source.count("{{") * longest for source in sources)


def octets(text: str | None) -> int:
    """In UTF-8."""
    return 0 if text is None else len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


Fill = Callable[[Slot], tuple[str, int]]


def _measured(text: str) -> tuple[str, int]:
    return text, octets(text)


def _filled(piece: str | Slot | UrlAttribute, fill: Fill) -> tuple[str | list[str], int]:
    """The text of a piece, or the texts that an address is to be joined of, and how long that will be."""
    if isinstance(piece, UrlAttribute):
        inside = [_measured(each) if isinstance(each, str) else fill(each) for each in piece.pieces]
        return [text for text, _ in inside], sum(size for _, size in inside)
    return _measured(piece) if isinstance(piece, str) else fill(piece)


def _one(text: str | list[str]) -> str:
    if isinstance(text, str):
        return text
    address = "".join(text)
    return address if SAFE_ADDRESS.match(address) else "#"


def check_subject(subject: str) -> None:
    if CONTROL.search(subject):
        raise InvalidSubject(param="subject")
