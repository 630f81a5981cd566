"""Compiles a template's source to literals, slots (places of values) and blocks: values are never parsed (contract 18).

In HTML the escaping of a slot depends on its context. In text and quoted attributes the value is escaped. In an address
(`href`, `src`, …) the value is encoded, and the scheme must be http(s), mailto or tel. Every other context is
refused. In the host of a link, in any part, only letters, digits, dots and hyphens of a value are kept. After a
complete host a value starts the path. A value can therefore change neither the target of a link nor, if a mailto has a
host, its recipient. A block must be between tags or around text, so that omitting its content does not change the
context of other slots.
"""

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Literal
from urllib.parse import unquote

import msgspec

from heliograph.templates.policy.formats import ValueFormat, read_format
from heliograph.templates.policy.markup import MASK, SAFE_SCHEME, SKIPPED_CHARACTERS, HtmlRange, html_ranges
from heliograph.templates.policy.placeholders import TOKEN, ItemFields, expand_short_forms, invalid_placeholders

PARTS = ("subject", "html", "text", "body")
FAULTS_MAX = 20  # maximum faults of one kind per part
DEPTH_MAX = 2
MISPLACED_BLOCK = "a block can be used between tags or around text, but not inside a tag or a URL"

HOST_MAX = 300  # examined characters of a host, which has at most 253
# Scheme and host as browsers read them, with any number of slashes or backslashes between them.
LINK_HOST = re.compile(r"[\x00-\x20]*https?:[/\\]*+([^/\\?#]*)", re.IGNORECASE)
_PATH_START = re.compile(r"[/\\?#]")  # ends a host
_MAILTO_SCHEME = re.compile(r"[\x00-\x20]*mailto:", re.IGNORECASE)
# Matches a mailto address up to a complete host, either of the address itself or of one in a to, cc or bcc field.
MAILTO_WITH_HOST = (
    r"[\x00-\x20]*mailto:(?:[^?]*@[^?,;@]*[^?,;@.]"
    r"|[^?]*\?(?:.*&(?:amp;)?)?(?:to|b?cc)=[^&]*@[^&,;@]*[^&,;@.])"
)
_RECIPIENT_FIELDS = ("to", "cc", "bcc")
_ENCODED_SEPARATOR = re.compile("%(40|2C|3B)", re.IGNORECASE)  # @ , ;
_LOCAL_PART = re.compile(r"[^?,;@]*@")  # local part of a mailto address
_LOCAL_PART_IN_FIELD = re.compile(r"[^&,;@]*@")
_HOST_CHARACTER = re.compile(r"[A-Za-z0-9.-]")
_NEARBY_PIECES = 16  # pieces of an address in which a host is searched
_REMOVED_BY_BROWSERS = str.maketrans("", "", "\t\r\n")  # browsers remove these characters from an address
_AUTHORITY_END = re.compile(r"[\s/?#\"'<>\\]")

Scope = Literal["customer", "brand", "item", "content"]
# plain: not HTML. text: HTML text. attribute: a quoted attribute. address, query: inside an address, before and after
# its `?`. host: between the scheme and the path, in any part. local: before the host of a mailto, or in the name of one
# of its fields. refused: anywhere else in HTML.
EscapeContext = Literal["plain", "text", "attribute", "address", "query", "host", "local", "refused"]
FaultCode = Literal[
    "crossed_block",
    "misplaced_block",
    "misplaced_placeholder",
    "nested_too_deep",
    "not_a_placeholder",
    "unclosed_block",
    "unknown_format",
    "unknown_variable",
    "unsafe_address",
]


class Fault(msgspec.Struct, frozen=True):
    code: FaultCode
    offset: int  # in the source
    text: str


class FaultList:
    """Faults found in a source; only the first FAULTS_MAX of each kind are stored."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self._counts: Counter[FaultCode] = Counter()

    def add(self, code: FaultCode, offset: int, text: str) -> None:
        self._counts[code] += 1
        if self._counts[code] <= FAULTS_MAX:
            self.faults.append(Fault(code, offset, text))


class Slot(msgspec.Struct, frozen=True):
    """Placeholder of one value, with the context that determines how the value is escaped."""

    scope: Scope
    name: str
    context: EscapeContext
    format: ValueFormat | None = None
    begins_path: bool = False  # after the host of a link: a slash is inserted, so that the value cannot extend it
    # Offset in the source; 0 in a compiled source, so that equal placeholders share their rendered text
    offset: int = 0


class UrlAttribute(msgspec.Struct, frozen=True):
    """A complete URL attribute whose scheme depends on its values."""

    pieces: tuple[str | Slot, ...]


class EachBlock(msgspec.Struct, frozen=True):
    name: str
    pieces: "Pieces"
    else_pieces: "Pieces"  # the {{else}} branch, for an empty list


class IfBlock(msgspec.Struct, frozen=True):
    scope: Scope
    name: str
    pieces: "Pieces"
    else_pieces: "Pieces"


Piece = str | Slot | UrlAttribute | EachBlock | IfBlock
Pieces = tuple[Piece, ...]


class VariableUse(msgspec.Struct, frozen=True):
    """A variable used in the source: a customer variable, or a field of a list's items."""

    name: str
    list: str | None = None  # the list whose items have this field; "" outside of `{{#each}}`
    format: ValueFormat | None = None
    is_list: bool = False


class CompiledSource(msgspec.Struct, frozen=True):
    source: str  # the source with all short forms expanded; all offsets are offsets in this text
    pieces: Pieces
    uses: dict[VariableUse, int]  # variable use → offset of its first occurrence, in order
    faults: tuple[Fault, ...]
    invalid_placeholders: tuple[tuple[int, str], ...]  # (offset, text) of each `{{` that is not a valid placeholder
    blocks: frozenset[str]  # keywords of the blocks used
    content_count: int  # number of {{content}} placeholders


class _BlockTag(msgspec.Struct, frozen=True):
    """A tag of a block: opening, else or closing."""

    keyword: str
    scope: str
    name: str
    offset: int  # in the source
    context: EscapeContext


class _OpenBlock(msgspec.Struct):
    tag: _BlockTag | None  # None for the top level
    pieces: list[Piece] = []
    else_pieces: list[Piece] | None = None

    def add(self, piece: Piece) -> None:
        (self.pieces if self.else_pieces is None else self.else_pieces).append(piece)


@lru_cache(maxsize=4096)
def compile_source(source: str, is_html: bool, item_fields: ItemFields = ()) -> CompiledSource:
    """Compile a part of a template.

    `item_fields`: each list with the declared fields of its items. Inside `{{#each}}`, a name without a scope is such a
    field if declared; any other name without a scope is a customer variable.
    """
    source = expand_short_forms(source, item_fields)
    masked = TOKEN.sub(lambda token: MASK * len(token[0]), source)
    faults = FaultList()
    pieces = _split_html(source, masked, faults) if is_html else _split(source, 0, len(source), "plain", faults)
    flat_pieces = _mark_host_slots(list(pieces))
    nesting = _Nesting(faults)
    for piece in flat_pieces:
        nesting.add(piece)
    return CompiledSource(
        source=source,
        pieces=nesting.finish(),
        uses=nesting.uses,
        faults=tuple(sorted(faults.faults, key=lambda fault: fault.offset)),
        invalid_placeholders=tuple(islice(invalid_placeholders(source, masked), FAULTS_MAX)),
        blocks=frozenset(piece.keyword for piece in flat_pieces if isinstance(piece, _BlockTag)),
        content_count=sum(isinstance(piece, Slot) and piece.scope == "content" for piece in flat_pieces),
    )


class _Nesting:
    """Nests the pieces of blocks and reports block tags that do not match."""

    def __init__(self, faults: FaultList) -> None:
        self.uses: dict[VariableUse, int] = {}  # use → offset of its first occurrence
        self._faults = faults
        self._open = [_OpenBlock(None)]
        self._misplaced_depth = 0  # number of open blocks that began inside a tag

    def add(self, piece: "Piece | _BlockTag") -> None:
        if isinstance(piece, _BlockTag):
            self._add_tag(piece)
            return
        self._open[-1].add(_without_offset(piece))
        for slot in piece.pieces if isinstance(piece, UrlAttribute) else (piece,):
            if isinstance(slot, Slot):
                self._add_use(slot.scope, slot.name, slot.offset, slot.format)

    def finish(self) -> Pieces:
        for block in self._open[1:]:
            assert block.tag
            word = block.tag.keyword
            self._faults.add("unclosed_block", block.tag.offset, f"{{{{#{word}}}}} is not closed: add {{{{/{word}}}}}")
        return tuple(self._open[0].pieces)

    def _add_tag(self, tag: _BlockTag) -> None:
        block = self._open[-1]
        if tag.context not in ("plain", "text"):
            self._add_misplaced_tag(tag)
        elif tag.keyword in ("each", "if") and tag.name:
            if len(self._open) > DEPTH_MAX or (tag.keyword == "each" and self._current_list()):
                self._faults.add(
                    "nested_too_deep",
                    tag.offset,
                    "blocks can be nested two levels deep, but not {{#each}} inside {{#each}}",
                )
            self._add_use(tag.scope, tag.name, tag.offset, is_list=tag.keyword == "each")
            self._open.append(_OpenBlock(tag))
        elif block.tag is None or (tag.keyword != "else" and block.tag.keyword != tag.keyword):
            tag_text = f"{{{{{tag.keyword if tag.keyword == 'else' else '/' + tag.keyword}}}}}"
            self._faults.add("crossed_block", tag.offset, f"Unexpected {tag_text}")
        elif tag.keyword != "else":
            self._close(block, block.tag)
        elif block.else_pieces is None:
            block.else_pieces = []
        else:
            self._faults.add("crossed_block", tag.offset, "a block can only have one {{else}}")

    def _add_misplaced_tag(self, tag: _BlockTag) -> None:
        """Report a misplaced block once: at its opening tag, or at its first tag in a disallowed position."""
        is_opening = bool(tag.name)
        if is_opening or not self._misplaced_depth:
            self._faults.add("misplaced_block", tag.offset, MISPLACED_BLOCK)
        if tag.keyword != "else":
            self._misplaced_depth = max(0, self._misplaced_depth + (1 if is_opening else -1))

    def _close(self, open_block: _OpenBlock, tag: _BlockTag) -> None:
        self._open.pop()
        pieces, else_pieces = tuple(open_block.pieces), tuple(open_block.else_pieces or ())
        if tag.keyword == "each":
            self._open[-1].add(EachBlock(tag.name, pieces, else_pieces))
        else:
            scope: Scope = "item" if tag.scope == "item" else "customer"
            self._open[-1].add(IfBlock(scope, tag.name, pieces, else_pieces))

    def _add_use(
        self, scope: str, name: str, offset: int, format_: ValueFormat | None = None, *, is_list: bool = False
    ) -> None:
        if scope == "customer":
            self.uses.setdefault(VariableUse(name, None, format_, is_list), offset)
        elif scope == "item":
            self.uses.setdefault(VariableUse(name, self._current_list() or "", format_), offset)

    def _current_list(self) -> str | None:
        """Return the list whose item is in scope; None outside of lists and in a list's {{else}} branch."""
        for block in self._open:
            if block.tag and block.tag.keyword == "each" and block.else_pieces is None:
                return block.tag.name
        return None


def _without_offset(piece: Piece) -> Piece:
    match piece:
        case Slot():
            return msgspec.structs.replace(piece, offset=0)
        case UrlAttribute(pieces=pieces):
            return UrlAttribute(tuple(map(_without_offset, pieces)))  # type: ignore[arg-type]
    return piece


def _split_html(source: str, masked: str, faults: FaultList) -> "Iterator[Piece | _BlockTag]":
    position = 0
    for html_range in html_ranges(masked):
        if MASK not in masked[html_range.start : html_range.end]:
            continue
        yield from _split(source, position, html_range.start, "text", faults)
        position = html_range.end
        if html_range.context == "refused":
            slots = (
                token for token in TOKEN.finditer(source, html_range.start, html_range.end) if token[1] or token[10]
            )
            # Only values: `_Nesting` reports misplaced blocks.
            if slot := next(slots, None):
                faults.add(
                    "misplaced_placeholder", slot.start(), f"a placeholder can't be used in {html_range.description}"
                )
        if html_range.context == "address":
            yield from _split_address(source, html_range, faults)
        else:
            yield from _split(source, html_range.start, html_range.end, html_range.context, faults)
    yield from _split(source, position, len(source), "text", faults)


def _split(
    source: str, start: int, end: int, context: EscapeContext, faults: FaultList
) -> "Iterator[str | Slot | _BlockTag]":
    for token in TOKEN.finditer(source, start, end):
        if token.start() > start:
            yield source[start : token.start()]
        start = token.end()
        yield _make_slot(token, context, faults) or _make_tag(token, context)
    if end > start:
        yield source[start:end]


def _mark_host_slots(pieces: "list[Piece | _BlockTag]") -> "list[Piece | _BlockTag]":
    """Set the context of each value placeholder that is in the host name of a link.

    After `{{else}}`, the host text is again the one before the block.
    """
    marked_pieces = list[Piece | _BlockTag]()
    host: str | None = None  # the host name read so far of the current link; None outside a host name
    outer_hosts: list[str | None] = []
    literals_after = _next_literals(pieces)
    for index, piece in enumerate(pieces):
        match piece:
            case str():
                host = _host_after(host, piece)
            case Slot(context=context, begins_path=begins_path) if host is not None:
                # Placeholders after a host in a URL attribute are already marked
                is_marked = begins_path or context in ("host", "query", "refused")
                piece, host = piece if is_marked else _mark_in_host(piece, host, literals_after[index]), host + MASK
            case _BlockTag(keyword="else"):
                host = outer_hosts[-1] if outer_hosts else host
            case _BlockTag(name=name) if name:
                outer_hosts.append(host)
            case _BlockTag():
                host_before = outer_hosts.pop() if outer_hosts else None
                host = host_before if host is None else host  # either branch may have been rendered
        marked_pieces.append(piece)
    return marked_pieces


def _next_literals(pieces: "Sequence[Piece | _BlockTag]") -> list[str]:
    """Return for each piece the next literal text after it; empty if none follows."""
    literals, next_literal = list[str](), ""
    for piece in reversed(pieces):
        literals.append(next_literal)
        next_literal = piece if isinstance(piece, str) else next_literal
    return literals[::-1]


def _host_after(host: str | None, literal: str) -> str | None:
    unescaped = html.unescape(literal[-HOST_MAX:]).replace("\\", "/")
    separator_at = unescaped.rfind("://")
    if separator_at < 0 and host is None:
        return None
    authority = unescaped[separator_at + 3 :] if separator_at >= 0 else html.unescape(literal)
    return None if _AUTHORITY_END.search(authority) else (host or "") * (separator_at < 0) + authority


def _mark_in_host(slot: Slot, host: str, after: str) -> Slot:
    """Return the slot marked as the start of the path if the host is complete, otherwise as part of the host.

    The host is incomplete after a dot or before more text.
    """
    if host and host[-1] not in ".:" and (not after or _AUTHORITY_END.match(after)):
        return msgspec.structs.replace(slot, begins_path=True)
    return msgspec.structs.replace(slot, context="host")


def _mark_in_mailto(slot: Slot, before: str, after: str) -> Slot:
    """Return the slot with its context inside a mailto URL.

    If the template itself has the host, a value can only be part of that host or of the local part.
    """
    local_part, query_at = _LOCAL_PART, before.find("?")
    if query_at >= 0:
        local_part, slot = _LOCAL_PART_IN_FIELD, msgspec.structs.replace(slot, context="query")
        name, equals_sign, before = before[max(query_at, before.rfind("&")) + 1 :].partition("=")
        if not equals_sign:
            return msgspec.structs.replace(slot, context="local")
        if MASK not in name and unquote(name).strip().lower() not in _RECIPIENT_FIELDS:
            return slot
    host = re.split("[,;]", decode_separators(before[-HOST_MAX:]))[-1].partition("@")
    after = decode_separators(after)
    if not host[1]:
        return msgspec.structs.replace(slot, context="local") if local_part.match(after) else slot
    is_complete = host[2][-1:] not in ("", ".") and not _HOST_CHARACTER.match(after)
    return msgspec.structs.replace(slot, context="refused" if is_complete else "host")


def decode_separators(text: str) -> str:
    """Decode percent-encoded address separators (@ , ;) of a mailto, as mail clients do."""
    return _ENCODED_SEPARATOR.sub(lambda match: unquote(match[0]), text)


def _make_slot(token: re.Match[str], context: EscapeContext, faults: FaultList) -> Slot | None:
    scope, name, kind, argument = token.group(1, 2, 3, 4)
    if token[10]:
        scope, name = "content", ""
        if context not in ("plain", "text"):
            faults.add(
                "misplaced_placeholder", token.start(), "{{content}} can be used between tags, but not inside a tag"
            )
    if scope is None:
        return None
    format_ = read_format(kind, argument) if kind else None
    if isinstance(format_, str):
        faults.add("unknown_format", token.start(), format_)
        format_ = None
    return Slot(scope, name, context, format_, offset=token.start())  # type: ignore[arg-type]


def _make_tag(token: re.Match[str], context: EscapeContext) -> _BlockTag:
    opening, scope, name, else_keyword, closing = token.group(5, 6, 7, 8, 9)
    return _BlockTag(opening or else_keyword or closing, scope or "", name or "", token.start(), context)


def _split_address(
    source: str, html_range: HtmlRange, faults: FaultList
) -> "Iterator[str | Slot | UrlAttribute | _BlockTag]":
    """Yield the pieces of a URL attribute; yield only # if its beginning can never be safe."""
    pieces: list[str | Slot] = []
    before, host = "", None
    address_pieces = list(_split(source, html_range.start, html_range.end, "address", faults))
    literals_after = _next_literals(address_pieces)
    for index, piece in enumerate(address_pieces):
        if isinstance(piece, _BlockTag):
            yield piece
            continue
        if isinstance(piece, str):
            text = html.unescape(piece).translate(_REMOVED_BY_BROWSERS)
            host_match = LINK_HOST.fullmatch(text)
            if pieces and host is not None:
                host = None if _PATH_START.search(text) else host + text
            elif not pieces and host_match:
                host = host_match[1]
            before += text
        elif host is not None:
            piece, host = _mark_in_host(piece, host, literals_after[index]), host + MASK
        elif _MAILTO_SCHEME.match(before):
            nearby = "".join(
                nearby_piece
                for nearby_piece in address_pieces[index + 1 : index + _NEARBY_PIECES]
                if isinstance(nearby_piece, str)
            )
            piece, before = _mark_in_mailto(piece, before, html.unescape(nearby[:HOST_MAX])), before + MASK
        elif "?" in before:
            piece = msgspec.structs.replace(piece, context="query")
        pieces.append(piece)
    first = html.unescape(pieces[0]) if pieces and isinstance(pieces[0], str) else ""
    if SAFE_SCHEME.match(first):
        yield from pieces
    elif first.strip(SKIPPED_CHARACTERS):
        message = f"{html_range.description} must begin with https:, http:, mailto:, tel: or with a placeholder"
        faults.add("unsafe_address", html_range.start, message)
        yield "#"
    elif pieces:
        yield UrlAttribute(tuple(pieces))
