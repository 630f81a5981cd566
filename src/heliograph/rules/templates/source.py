"""A template's source, cut once into literals and slots, so that a value is never scanned again.

In HTML each slot knows its place: text and quoted attributes escape the value, an address (`href`, `src`,
…) encodes it and must come out as http(s), mailto or tel, and every other place is refused. In the host of a link,
in whatever part, letters, digits, dots and hyphens pass and nothing else: a value does not say where it leads.
"""

import html
import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from typing import Literal
from urllib.parse import quote

import msgspec

from heliograph.rules.templates.markup import BLANK, MASK, SAFE_ADDRESS, Stretch, stretches
from heliograph.rules.templates.placeholders import PLACEHOLDER, strays

PROBLEMS_MAX = 20  # of a kind in one part that are told
_ADDRESS_SAFE = "/:?#[]@!$&()*+,;=%~"
_QUERY_SAFE = "/:@?!$()*,=~"  # not & + # % ;: they would end the value or change it

HOST_MAX = 300  # characters of a link before a placeholder in its host; a host has at most 253
_AUTHORITY_END = re.compile(r"[\s/?#\"'<>\\]")
_NOT_OF_A_HOST = re.compile(r"[^A-Za-z0-9.-]+")

# plain: not HTML. text: HTML text or a quoted attribute. address, query: inside an address, before and after
# its `?`. host: between `://` and the path, in any part. refused: anywhere else in HTML.
Place = Literal["plain", "text", "address", "query", "host", "refused"]


class Slot(msgspec.Struct, frozen=True):
    """A placeholder and where it stands."""

    brand: bool
    name: str
    place: Place

    def fill(self, values: Mapping[str, str], brand: Mapping[str, str]) -> str:
        value = (brand if self.brand else values).get(self.name, "")
        match self.place:
            case "plain":
                return value
            case "text":
                return html.escape(value)
            case "address":
                return html.escape(quote(value.strip(BLANK), safe=_ADDRESS_SAFE, errors="replace"))
            case "query":
                return html.escape(quote(value, safe=_QUERY_SAFE, errors="replace"))
            case "host":
                return _NOT_OF_A_HOST.sub("", value)
            case "refused":
                return ""


class UrlAttribute(msgspec.Struct, frozen=True):
    """A whole attribute value whose scheme only its values decide."""

    pieces: tuple[str | Slot, ...]


class Compiled(msgspec.Struct, frozen=True):
    pieces: tuple[str | Slot | UrlAttribute, ...]
    names: tuple[str, ...]  # of the customer's slots
    problems: tuple[str, ...]
    strays: tuple[str, ...]  # what begins like a placeholder and is none


@lru_cache(maxsize=4096)
def compiled(source: str, markup: bool) -> Compiled:
    found = list(PLACEHOLDER.finditer(source))
    masked = PLACEHOLDER.sub(lambda slot: MASK * len(slot[0]), source)
    problems: list[str] = []
    pieces: list[str | Slot | UrlAttribute] = []
    if not markup:
        pieces += _cut(source, masked, 0, len(source), "plain")
    else:
        at = 0
        for stretch in stretches(masked):
            if MASK not in masked[stretch.start : stretch.end]:
                continue
            pieces += _cut(source, masked, at, stretch.start, "text")
            at = stretch.end
            if stretch.place == "refused":
                problems.append(f"a placeholder cannot stand in {stretch.what}")
                pieces += _cut(source, masked, stretch.start, stretch.end, "refused")
            else:
                address = _cut_address(source, masked, stretch)
                if address is None:
                    problems.append(
                        f"{stretch.what} must begin with https:, http:, mailto:, tel: or with a placeholder"
                    )
                pieces += address or ["#"]
        pieces += _cut(source, masked, at, len(source), "text")
    return Compiled(
        pieces=tuple(pieces),
        names=tuple(slot[2] for slot in found if slot[1] == "customer"),
        problems=tuple(problems),
        strays=tuple(islice(strays(source, masked), PROBLEMS_MAX)),
    )


def _cut(source: str, masked: str, start: int, end: int, place: Place) -> list[str | Slot]:
    pieces: list[str | Slot] = []
    for slot in PLACEHOLDER.finditer(source, start, end):
        stands = "host" if place != "refused" and _is_in_host(masked, slot.start()) else place
        pieces += [source[start : slot.start()], Slot(slot[1] == "brand", slot[2], stands)]
        start = slot.end()
    pieces.append(source[start:end])
    return [piece for piece in pieces if piece]


def _is_in_host(masked: str, at: int) -> bool:
    begin = masked.rfind("://", max(0, at - HOST_MAX), at)
    return begin >= 0 and not _AUTHORITY_END.search(masked, begin + 3, at)


def _cut_address(source: str, masked: str, stretch: Stretch) -> "list[str | Slot | UrlAttribute] | None":
    """The pieces of an address, or None when its beginning can never be safe."""
    pieces: list[str | Slot] = []
    before = ""
    for piece in _cut(source, masked, stretch.start, stretch.end, "address"):
        if isinstance(piece, str):
            before += html.unescape(piece)
        elif "?" in before:
            piece = Slot(piece.brand, piece.name, "query")
        pieces.append(piece)
    first = html.unescape(pieces[0]) if isinstance(pieces[0], str) else ""
    if SAFE_ADDRESS.match(first):
        return [*pieces]
    return None if first.strip(BLANK) else [UrlAttribute(tuple(pieces))]
