"""Renders a template with a caller's values; the output is joined only after its length was checked."""

import html
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import quote

import msgspec

from heliograph.domain.limits import BODY_OCTETS_MAX, SUBJECT_OCTETS_MAX
from heliograph.domain.refusals import InvalidSubject
from heliograph.domain.setup.records import Layout, Template
from heliograph.templates.policy.formats import Region, formatted, is_from_the_right, plain_spaces
from heliograph.templates.policy.markup import BLANK, SAFE_ADDRESS, tags
from heliograph.templates.policy.source import (
    HOST,
    HOST_MAX,
    MAILBOX,
    PARTS,
    Each,
    If,
    Pieces,
    Place,
    Slot,
    UrlAttribute,
    compiled,
    read_mailbox,
)
from heliograph.templates.policy.values import NONE, Values, check_size, with_fallback

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # Unicode categories Cc, Zl and Zp
_ADDRESS_SAFE = "/:?#[]@!$&()*+,;=%~"
_QUERY_SAFE = "/:@?!$()*,=~"  # without & + # % ; because they would end or change the value
_MAILBOX = re.compile(MAILBOX, re.IGNORECASE | re.DOTALL)
_NOT_OF_A_HOST = re.compile(r"[^A-Za-z0-9.-]+")
_MOST = {"subject": SUBJECT_OCTETS_MAX}  # maximum octets of a part with its own limit; html and text share one


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    subject: str | None
    html: str | None
    text: str | None
    body: str | None


def render(template: Template, values: Values, brand: Mapping[str, str], layout: Layout | None = None) -> Rendered:
    """Render a template; missing values are empty: `check_variables` decides beforehand if they may be missing.

    Lengths are checked before joining, because a value can occur thousands of times in a template.
    """
    values, parts = with_fallback(template, values), {}
    left = BODY_OCTETS_MAX  # remaining octets for html and text together
    for part in PARTS:
        if (source := getattr(template, part)) is None:
            continue
        most = _MOST.get(part, left)
        writer = _Writer(template, values, brand, most, part)
        around = getattr(layout, part, None) if layout and part in ("html", "text") else None
        if around is not None:
            around = in_direction(around, template.locale) if part == "html" else around
            writer.around(compiled(around, part == "html").pieces, compiled(source, part == "html").pieces)
        else:
            writer.write(compiled(source, part == "html").pieces, NONE)
        if part in ("html", "text"):
            left = most - writer.size
        parts[part] = "".join(writer.texts)
    return Rendered(**dict.fromkeys(PARTS) | parts)


def render_body(template: Template, values: Values, brand: Mapping[str, str]) -> str:
    """Render the body of an SMS or WhatsApp message, the only part of its template."""
    writer = _Writer(template, with_fallback(template, values), brand, BODY_OCTETS_MAX, "body")
    writer.write(compiled(template.body or "", False).pieces, NONE)
    return "".join(writer.texts)


def in_direction(layout: str, locale: str) -> str:
    """Return a layout's HTML with the text direction of the locale, because one layout serves all languages."""
    return _from_the_right(layout) if is_from_the_right(locale) else layout


@lru_cache(maxsize=64)
def _from_the_right(layout: str) -> str:
    """Add dir="rtl" to `<html>` and to the first table or div, because webmail drops `<html>`.

    No-op if either has `dir`.
    """
    found = list(tags(layout, len(layout)))
    firsts = [next((tag for tag in found if tag.name in names), None) for names in (("table", "div"), ("html",))]
    outer = [tag for tag in firsts if tag]
    if any(attribute[1].lower() == "dir" for tag in outer for attribute in tag.attributes):
        return layout
    for tag in sorted(outer, key=lambda tag: -tag.start):
        layout = f'{layout[: tag.name_end]} dir="rtl"{layout[tag.name_end :]}'
    return layout


def octets(text: str | None) -> int:
    """Return the UTF-8 length of a text."""
    return 0 if text is None else len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def most_octets(template: Template, values: Iterable[str], layout: Layout | None = None) -> int:
    """Return a rough upper bound of the rendered size. Its cost does not depend on how often the values occur."""
    longest = max(map(len, values), default=0)
    times = max((shape.max for shape in template.shapes.values() if shape.list), default=1)
    sources: list[str] = [source for part in PARTS if (source := getattr(template, part))]
    around = len(layout.html or "") + len(layout.text or "") if layout else 0
    return around + times * sum(len(source) + source.count("{{") * longest for source in sources)


class _Writer:
    """Writes the pieces of one part, and raises once the part is too long."""

    def __init__(self, template: Template, values: Values, brand: Mapping[str, str], most: int, part: str) -> None:
        self.texts: list[str] = []
        self.size = 0
        self._values = values
        self._brand = brand
        self._template = template
        self._most = most
        self._part = part
        self._filled: dict[Slot, str] = {}  # rendered customer and brand values, which may occur more than once

    def around(self, layout: Pieces, content: Pieces) -> None:
        for piece in layout:
            if isinstance(piece, Slot) and piece.scope == "content":
                self.write(content, NONE)
            else:
                self.write((piece,), NONE)

    def write(self, pieces: Pieces, item: Values) -> None:
        for piece in pieces:
            if isinstance(piece, str):
                text = piece
            elif isinstance(piece, Slot):
                text = self._fill(piece, item)
            else:
                self._write_block(piece, item)
                continue
            self.size += len(text) if text.isascii() else octets(text)
            if self.size > self._most:
                self._measure(0)
            self.texts.append(text)

    def _write_block(self, piece: UrlAttribute | Each | If, item: Values) -> None:
        match piece:
            case UrlAttribute(pieces=inside):
                self._add_address(inside, item)
            case Each(name=name):
                items = self._values.lists.get(name, ())
                for each in items:
                    self.write(piece.pieces, each)
                if not items:
                    self.write(piece.otherwise, NONE)
            case If(scope=scope, name=name):
                holds = (item if scope == "item" else self._values).has(name)
                self.write(piece.pieces if holds else piece.otherwise, item)

    def _add_address(self, pieces: tuple[str | Slot, ...], item: Values) -> None:
        texts = [piece if isinstance(piece, str) else self._fill(piece, item) for piece in pieces]
        self._measure(sum(map(octets, texts)))
        address = ""
        for piece, text in zip(pieces, texts, strict=True):
            if text and isinstance(piece, Slot):
                text = _behind_host(address, text)
            address += text
        self.texts.append(address if SAFE_ADDRESS.match(address) else "#")

    def _measure(self, more: int) -> None:
        self.size += more
        if self.size > self._most:
            check_size(self.size, f"rendered {self._part} has at least", param="variables", most=self._most)

    def _fill(self, slot: Slot, item: Values) -> str:
        if slot.scope == "item":
            return self._escaped(slot, item.texts.get(slot.name, ""))
        if (filled := self._filled.get(slot)) is None:
            of = self._brand if slot.scope == "brand" else self._values.texts
            filled = self._filled[slot] = self._escaped(slot, of.get(slot.name, ""))
        return filled

    def _escaped(self, slot: Slot, value: str) -> str:
        if slot.format and value:
            value = formatted(slot.format, value, Region(self._template.locale, self._template.timezone))
            value = plain_spaces(value) if self._part == "body" else value
        value = begin_path(value) if slot.begins_path and value else value
        return value if slot.place == "plain" else escaped(slot.place, value)


def _behind_host(address: str, value: str) -> str:
    """Return the value adjusted to its position, so that it cannot change the host of a link or mailto."""
    begun = html.unescape(address) if len(address) <= HOST_MAX else ""
    host = HOST.fullmatch(begun)
    return begin_path(value) if host and host[1] else "" if _MAILBOX.fullmatch(read_mailbox(begun)) else value


def begin_path(value: str) -> str:
    return value if value.lstrip(BLANK)[:1] in ("/", "?", "#") else f"/{value}"


def escaped(place: Place, value: str) -> str:
    match place:
        case "plain":
            return value
        case "text" | "attribute":
            return html.escape(value)
        case "address":
            return html.escape(quote(value.strip(BLANK), safe=_ADDRESS_SAFE, errors="replace"))
        case "query":
            return html.escape(quote(value, safe=_QUERY_SAFE, errors="replace"))
        case "host":
            return _NOT_OF_A_HOST.sub("", value)
        case "local":
            return quote(value, safe="", errors="replace")
        case "refused":
            return ""


def check_subject(subject: str) -> None:
    if CONTROL.search(subject):
        raise InvalidSubject(param="subject")
