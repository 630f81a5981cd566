"""Renders a template with a caller's values. The parts of the output are joined only after their length was checked."""

import html
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import quote

import msgspec

from heliograph.domain.limits import BODY_OCTETS_MAX, SUBJECT_OCTETS_MAX
from heliograph.domain.refusals import InvalidSubject
from heliograph.domain.setup.records import Layout, Template
from heliograph.templates.policy.formats import Region, format_value, is_right_to_left, replace_no_break_spaces
from heliograph.templates.policy.markup import SAFE_SCHEME, SKIPPED_CHARACTERS, parse_tags
from heliograph.templates.policy.source import (
    HOST_MAX,
    LINK_HOST,
    MAILTO_WITH_HOST,
    PARTS,
    EachBlock,
    EscapeContext,
    IfBlock,
    Pieces,
    Slot,
    UrlAttribute,
    compile_source,
    decode_separators,
)
from heliograph.templates.policy.values import NO_VALUES, Values, check_size, with_fallback_values
from heliograph.templates.policy.variable_types import item_fields_of

CONTROL_CHARACTER = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # Unicode categories Cc, Zl and Zp
_ADDRESS_SAFE_CHARS = "/:?#[]@!$&()*+,;=%~"
_QUERY_SAFE_CHARS = "/:@?!$()*,=~"  # without & + # % ; because they would end or change the value
_COMPLETE_MAILBOX = re.compile(MAILTO_WITH_HOST, re.IGNORECASE | re.DOTALL)
_INVALID_HOST_CHARS = re.compile(r"[^A-Za-z0-9.-]+")
_OCTETS_MAX_BY_PART = {"subject": SUBJECT_OCTETS_MAX}  # octet limit by part; html and text share BODY_OCTETS_MAX


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    subject: str | None
    html: str | None
    text: str | None
    body: str | None


def render(template: Template, values: Values, brand: Mapping[str, str], layout: Layout | None = None) -> Rendered:
    """Render a template. A missing value is empty; `check_variables` has decided whether it may be missing.

    Lengths are checked before joining, because a value can occur thousands of times in a template.
    """
    values, parts = with_fallback_values(template, values), {}
    item_fields = item_fields_of(template) if template.shapes else ()
    remaining_octets = BODY_OCTETS_MAX  # remaining octets for html and text together
    for part in PARTS:
        if (source := getattr(template, part)) is None:
            continue
        limit = _OCTETS_MAX_BY_PART.get(part, remaining_octets)
        writer = _Writer(template, values, brand, limit, part)
        pieces = compile_source(source, part == "html", item_fields).pieces
        layout_source = getattr(layout, part, None) if layout and part in ("html", "text") else None
        if layout_source is not None:
            layout_source = with_text_direction(layout_source, template.locale) if part == "html" else layout_source
            writer.write_layout(compile_source(layout_source, part == "html").pieces, pieces)
        else:
            writer.write(pieces, NO_VALUES)
        if part in ("html", "text"):
            remaining_octets = limit - writer.size
        parts[part] = "".join(writer.texts)
    return Rendered(**dict.fromkeys(PARTS) | parts)


def render_body(template: Template, values: Values, brand: Mapping[str, str]) -> str:
    """Render the body of an SMS or WhatsApp message, the only part of its template."""
    writer = _Writer(template, with_fallback_values(template, values), brand, BODY_OCTETS_MAX, "body")
    item_fields = item_fields_of(template) if template.shapes else ()
    writer.write(compile_source(template.body or "", False, item_fields).pieces, NO_VALUES)
    return "".join(writer.texts)


def with_text_direction(layout: str, locale: str) -> str:
    """Return a layout's HTML with the text direction of the locale, because one layout serves all languages."""
    return _as_right_to_left(layout) if is_right_to_left(locale) else layout


@lru_cache(maxsize=64)
def _as_right_to_left(layout: str) -> str:
    """Add dir="rtl" to `<html>` and to the first table or div, because webmail drops `<html>`.

    Nothing is added if `<html>` or that element already has `dir`.
    """
    all_tags = list(parse_tags(layout, len(layout)))
    first_tags = [next((tag for tag in all_tags if tag.name in names), None) for names in (("table", "div"), ("html",))]
    outer_tags = [tag for tag in first_tags if tag]
    if any(attribute[1].lower() == "dir" for tag in outer_tags for attribute in tag.attributes):
        return layout
    for tag in sorted(outer_tags, key=lambda tag: -tag.start):
        layout = f'{layout[: tag.name_end]} dir="rtl"{layout[tag.name_end :]}'
    return layout


def octets(text: str | None) -> int:
    """Return the length of a text in UTF-8; 0 for None."""
    return 0 if text is None else len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def estimate_octets(template: Template, values: Iterable[str], layout: Layout | None = None) -> int:
    """Return a rough upper bound of the rendered size in octets, without rendering the template."""
    longest = max(map(len, values), default=0)
    repetitions = max((shape.max for shape in template.shapes.values() if shape.list), default=1)
    sources: list[str] = [source for part in PARTS if (source := getattr(template, part))]
    layout_length = len(layout.html or "") + len(layout.text or "") if layout else 0
    return layout_length + repetitions * sum(len(source) + source.count("{{") * longest for source in sources)


class _Writer:
    """Writes the pieces of one part; raises BodyTooLong as soon as the part exceeds its limit."""

    def __init__(self, template: Template, values: Values, brand: Mapping[str, str], limit: int, part: str) -> None:
        self.texts: list[str] = []
        self.size = 0
        self._values = values
        self._brand = brand
        self._template = template
        self._limit = limit
        self._part = part
        self._text_by_slot: dict[Slot, str] = {}  # rendered customer and brand values, which may occur more than once

    def write_layout(self, layout: Pieces, content: Pieces) -> None:
        for piece in layout:
            if isinstance(piece, Slot) and piece.scope == "content":
                self.write(content, NO_VALUES)
            else:
                self.write((piece,), NO_VALUES)

    def write(self, pieces: Pieces, item: Values) -> None:
        for piece in pieces:
            if isinstance(piece, str):
                text = piece
            elif isinstance(piece, Slot):
                text = self._render_slot(piece, item)
            else:
                self._write_block(piece, item)
                continue
            self.size += len(text) if text.isascii() else octets(text)
            if self.size > self._limit:
                self._add_size(0)
            self.texts.append(text)

    def _write_block(self, piece: UrlAttribute | EachBlock | IfBlock, item: Values) -> None:
        match piece:
            case UrlAttribute(pieces=address_pieces):
                self._write_address(address_pieces, item)
            case EachBlock(name=name):
                items = self._values.lists.get(name, ())
                for fields in items:
                    self.write(piece.pieces, fields)
                if not items:
                    self.write(piece.else_pieces, NO_VALUES)
            case IfBlock(scope=scope, name=name):
                is_true = (item if scope == "item" else self._values).is_true(name)
                self.write(piece.pieces if is_true else piece.else_pieces, item)

    def _write_address(self, pieces: tuple[str | Slot, ...], item: Values) -> None:
        texts = [piece if isinstance(piece, str) else self._render_slot(piece, item) for piece in pieces]
        self._add_size(sum(map(octets, texts)))
        address = ""
        for piece, text in zip(pieces, texts, strict=True):
            if text and isinstance(piece, Slot):
                text = _adjust_to_host(address, text)
            address += text
        self.texts.append(address if SAFE_SCHEME.match(address) else "#")

    def _add_size(self, octets_added: int) -> None:
        self.size += octets_added
        if self.size > self._limit:
            check_size(self.size, f"rendered {self._part} has at least", param="variables", limit=self._limit)

    def _render_slot(self, slot: Slot, item: Values) -> str:
        if slot.scope == "item":
            return self._format_and_escape(slot, item.texts.get(slot.name, ""))
        if (text := self._text_by_slot.get(slot)) is None:
            source_values = self._brand if slot.scope == "brand" else self._values.texts
            text = self._text_by_slot[slot] = self._format_and_escape(slot, source_values.get(slot.name, ""))
        return text

    def _format_and_escape(self, slot: Slot, value: str) -> str:
        if slot.format and value:
            value = format_value(slot.format, value, Region(self._template.locale, self._template.timezone))
            value = replace_no_break_spaces(value) if self._part == "body" else value
        value = with_path_separator(value) if slot.begins_path and value else value
        return value if slot.context == "plain" else escape_value(slot.context, value)


def _adjust_to_host(address: str, value: str) -> str:
    """Return the value adjusted to its position in a URL, so that it cannot change the host of a link or mailto."""
    preceding = html.unescape(address) if len(address) <= HOST_MAX else ""
    host = LINK_HOST.fullmatch(preceding)
    if host and host[1]:
        return with_path_separator(value)
    return "" if _COMPLETE_MAILBOX.fullmatch(decode_separators(preceding)) else value


def with_path_separator(value: str) -> str:
    return value if value.lstrip(SKIPPED_CHARACTERS)[:1] in ("/", "?", "#") else f"/{value}"


def escape_value(context: EscapeContext, value: str) -> str:
    match context:
        case "plain":
            return value
        case "text" | "attribute":
            return html.escape(value)
        case "address":
            return html.escape(quote(value.strip(SKIPPED_CHARACTERS), safe=_ADDRESS_SAFE_CHARS, errors="replace"))
        case "query":
            return html.escape(quote(value, safe=_QUERY_SAFE_CHARS, errors="replace"))
        case "host":
            return _INVALID_HOST_CHARS.sub("", value)
        case "local":
            return quote(value, safe="", errors="replace")
        case "refused":
            return ""


def check_subject(subject: str) -> None:
    if CONTROL_CHARACTER.search(subject):
        raise InvalidSubject(param="subject")
