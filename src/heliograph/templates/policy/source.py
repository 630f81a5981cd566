"""Compiles a template's source into literals, slots and blocks, so that values are never parsed (contract 18).

In HTML the escaping of a slot depends on its place. In text and quoted attributes the value is escaped. In an address
(`href`, `src`, …) the value is encoded, and the address must become http(s), mailto or tel. Every other place is
refused. In the host of a link, in any part, only letters, digits, dots and hyphens of a value are kept. After a
complete host a value starts the path. A value can therefore change neither the target of a link nor, if a mailto has a
host, its recipient. A block must be between tags or around text, so that omitting its content does not change the place
of other slots.
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
from heliograph.templates.policy.markup import BLANK, MASK, SAFE_ADDRESS, Stretch, stretches
from heliograph.templates.policy.placeholders import TOKEN, strays

PARTS = ("subject", "html", "text", "body")
FAULTS_MAX = 20  # maximum faults of one kind per part
DEPTH_MAX = 2
MISPLACED = "a block stands between tags or around text, never inside a tag or an address"

HOST_MAX = 300  # examined characters of a host, which has at most 253
# Scheme and host as browsers read them, with any number of slashes or backslashes between them.
HOST = re.compile(r"[\x00-\x20]*https?:[/\\]*+([^/\\?#]*)", re.IGNORECASE)
_PATH = re.compile(r"[/\\?#]")  # ends a host
_MAILTO = re.compile(r"[\x00-\x20]*mailto:", re.IGNORECASE)
# A mailto up to a complete host: of its own address, or of an address in a to, cc or bcc field.
MAILBOX = (
    r"[\x00-\x20]*mailto:(?:[^?]*@[^?,;@]*[^?,;@.]"
    r"|[^?]*\?(?:.*&(?:amp;)?)?(?:to|b?cc)=[^&]*@[^&,;@]*[^&,;@.])"
)
_GETS_IT = ("to", "cc", "bcc")
_ENCODED = re.compile("%(40|2C|3B)", re.IGNORECASE)  # @ , ;
_BEFORE_HOST = re.compile(r"[^?,;@]*@")  # local part of a mailto address
_BEFORE_HOST_IN_FIELD = re.compile(r"[^&,;@]*@")
_IN_HOST = re.compile(r"[A-Za-z0-9.-]")
_NEAR = 16  # pieces of an address in which a host is searched
_UNREAD = str.maketrans("", "", "\t\r\n")  # browsers remove these characters from an address
_AUTHORITY_END = re.compile(r"[\s/?#\"'<>\\]")

Scope = Literal["customer", "brand", "item", "content"]
# plain: not HTML. text: HTML text. attribute: a quoted attribute. address, query: inside an address, before and after
# its `?`. host: between the scheme and the path, in any part. local: before the host of a mailto, or in the name of one
# of its fields. refused: anywhere else in HTML.
Place = Literal["plain", "text", "attribute", "address", "query", "host", "local", "refused"]
Code = Literal[
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
    code: Code
    at: int  # offset in the source
    text: str


class Faults:
    """Faults of a source; only the first FAULTS_MAX of each kind are kept."""

    def __init__(self) -> None:
        self.found: list[Fault] = []
        self._counts: Counter[Code] = Counter()

    def add(self, code: Code, at: int, text: str) -> None:
        self._counts[code] += 1
        if self._counts[code] <= FAULTS_MAX:
            self.found.append(Fault(code, at, text))


class Slot(msgspec.Struct, frozen=True):
    """A placeholder with its place."""

    scope: Scope
    name: str
    place: Place
    format: ValueFormat | None = None
    begins_path: bool = False  # after the host of a link: a slash is inserted, so that the value cannot extend it


class UrlAttribute(msgspec.Struct, frozen=True):
    """A complete address attribute whose scheme depends on its values."""

    pieces: tuple[str | Slot, ...]


class Each(msgspec.Struct, frozen=True):
    name: str
    pieces: "Pieces"
    otherwise: "Pieces"  # the {{else}} branch, for an empty list


class If(msgspec.Struct, frozen=True):
    scope: Scope
    name: str
    pieces: "Pieces"
    otherwise: "Pieces"


Piece = str | Slot | UrlAttribute | Each | If
Pieces = tuple[Piece, ...]


class Usage(msgspec.Struct, frozen=True):
    """A variable used in the source: of the customer, or of the items of a list."""

    name: str
    list: str | None = None  # the list whose items have this field
    format: ValueFormat | None = None
    is_list: bool = False


class Compiled(msgspec.Struct, frozen=True):
    pieces: Pieces
    uses: tuple[Usage, ...]  # without duplicates, in order
    faults: tuple[Fault, ...]
    strays: tuple[tuple[int, str], ...]  # (offset, text) of each `{{` that is not a valid placeholder
    blocks: frozenset[str]  # keywords of the blocks used
    contents: int  # number of {{content}} placeholders


class _Tag(msgspec.Struct, frozen=True):
    """A block tag: opening, else or closing."""

    word: str
    scope: str
    name: str
    at: int
    place: Place


class _Open(msgspec.Struct):
    tag: _Tag | None  # None for the top level
    pieces: list[Piece] = []
    otherwise: list[Piece] | None = None

    def add(self, piece: Piece) -> None:
        (self.pieces if self.otherwise is None else self.otherwise).append(piece)


@lru_cache(maxsize=4096)
def compiled(source: str, markup: bool) -> Compiled:
    masked = TOKEN.sub(lambda token: MASK * len(token[0]), source)
    faults = Faults()
    cut = _html_pieces(source, masked, faults) if markup else _cut(source, 0, len(source), "plain", faults)
    flat = _with_hosts(list(cut))
    nest = _Nest(faults)
    for piece in flat:
        nest.take(piece)
    return Compiled(
        pieces=nest.end(),
        uses=tuple(dict.fromkeys(nest.uses)),
        faults=tuple(sorted(faults.found, key=lambda fault: fault.at)),
        strays=tuple(islice(strays(source, masked), FAULTS_MAX)),
        blocks=frozenset(piece.word for piece in flat if isinstance(piece, _Tag)),
        contents=sum(isinstance(piece, Slot) and piece.scope == "content" for piece in flat),
    )


class _Nest:
    """Nests the pieces of blocks and reports block tags that do not match."""

    def __init__(self, faults: Faults) -> None:
        self.uses: list[Usage] = []
        self._faults = faults
        self._open = [_Open(None)]
        self._misplaced = 0  # number of open blocks that began inside a tag

    def take(self, piece: "Piece | _Tag") -> None:
        if isinstance(piece, _Tag):
            self._take_tag(piece)
            return
        self._open[-1].add(piece)
        for slot in piece.pieces if isinstance(piece, UrlAttribute) else (piece,):
            if isinstance(slot, Slot):
                self._use(slot.scope, slot.name, slot.format)

    def end(self) -> Pieces:
        for opened in self._open[1:]:
            assert opened.tag
            word = opened.tag.word
            self._faults.add("unclosed_block", opened.tag.at, f"{{{{#{word}}}}} is not closed: add {{{{/{word}}}}}")
        return tuple(self._open[0].pieces)

    def _take_tag(self, tag: _Tag) -> None:
        inner = self._open[-1]
        if tag.place not in ("plain", "text"):
            self._take_misplaced(tag)
        elif tag.word in ("each", "if") and tag.name:
            if len(self._open) > DEPTH_MAX or (tag.word == "each" and self._list()):
                self._faults.add("nested_too_deep", tag.at, "blocks nest at most two deep, and an each holds no each")
            self._use(tag.scope, tag.name, None, is_list=tag.word == "each")
            self._open.append(_Open(tag))
        elif inner.tag is None or (tag.word != "else" and inner.tag.word != tag.word):
            what = f"{{{{{tag.word if tag.word == 'else' else '/' + tag.word}}}}}"
            self._faults.add("crossed_block", tag.at, f"{what} does not fit the block that is open here")
        elif tag.word != "else":
            self._close(inner, inner.tag)
        elif inner.otherwise is None:
            inner.otherwise = []
        else:
            self._faults.add("crossed_block", tag.at, "a block has one {{else}}")

    def _take_misplaced(self, tag: _Tag) -> None:
        """Report a misplaced block once: where it opens, or at its first tag in a refused place."""
        opens = bool(tag.name)
        if opens or not self._misplaced:
            self._faults.add("misplaced_block", tag.at, MISPLACED)
        if tag.word != "else":
            self._misplaced = max(0, self._misplaced + (1 if opens else -1))

    def _close(self, inner: _Open, tag: _Tag) -> None:
        self._open.pop()
        pieces, otherwise = tuple(inner.pieces), tuple(inner.otherwise or ())
        made = Each(tag.name, pieces, otherwise) if tag.word == "each" else If(_scope(tag), tag.name, pieces, otherwise)
        self._open[-1].add(made)

    def _use(self, scope: str, name: str, format_: ValueFormat | None, *, is_list: bool = False) -> None:
        if scope == "customer":
            self.uses.append(Usage(name, None, format_, is_list))
        elif scope == "item":
            self.uses.append(Usage(name, self._list() or "", format_))

    def _list(self) -> str | None:
        """Return the list whose item is in scope; None in the {{else}} branch."""
        for opened in self._open:
            if opened.tag and opened.tag.word == "each" and opened.otherwise is None:
                return opened.tag.name
        return None


def _scope(tag: _Tag) -> Scope:
    return "item" if tag.scope == "item" else "customer"


def _html_pieces(source: str, masked: str, faults: Faults) -> "Iterator[Piece | _Tag]":
    at = 0
    for stretch in stretches(masked):
        if MASK not in masked[stretch.start : stretch.end]:
            continue
        yield from _cut(source, at, stretch.start, "text", faults)
        at = stretch.end
        if stretch.place == "refused":
            slots = (token for token in TOKEN.finditer(source, stretch.start, stretch.end) if token[1] or token[10])
            if slot := next(slots, None):  # misplaced blocks are reported by `_Nest`
                faults.add("misplaced_placeholder", slot.start(), f"a placeholder cannot stand in {stretch.what}")
        if stretch.place == "address":
            yield from _cut_address(source, stretch, faults)
        else:
            yield from _cut(source, stretch.start, stretch.end, stretch.place, faults)
    yield from _cut(source, at, len(source), "text", faults)


def _cut(source: str, start: int, end: int, place: Place, faults: Faults) -> "Iterator[str | Slot | _Tag]":
    for token in TOKEN.finditer(source, start, end):
        if token.start() > start:
            yield source[start : token.start()]
        start = token.end()
        yield _slot(token, place, faults) or _tag(token, place)
    if end > start:
        yield source[start:end]


def _with_hosts(flat: "list[Piece | _Tag]") -> "list[Piece | _Tag]":
    """Mark the slots in hosts of links. At `{{else}}` the state before its block is restored."""
    placed = list[Piece | _Tag]()
    host: str | None = None  # the host so far; None outside a host
    outer: list[str | None] = []
    after = _literals_after(flat)
    for at, piece in enumerate(flat):
        match piece:
            case str():
                host = _host_behind(host, piece)
            case Slot(place=place, begins_path=begins) if host is not None:
                is_found = begins or place in ("host", "query", "refused")  # slots of an address are already marked
                piece, host = piece if is_found else _in_host(piece, host, after[at]), host + MASK
            case _Tag(word="else"):
                host = outer[-1] if outer else host
            case _Tag(name=name) if name:
                outer.append(host)
            case _Tag():
                before = outer.pop() if outer else None
                host = before if host is None else host  # either branch may have been rendered
        placed.append(piece)
    return placed


def _literals_after(flat: "Sequence[Piece | _Tag]") -> list[str]:
    """Return for each position the next literal; empty if there is none."""
    found, last = list[str](), ""
    for piece in reversed(flat):
        found.append(last)
        last = piece if isinstance(piece, str) else last
    return found[::-1]


def _host_behind(host: str | None, literal: str) -> str | None:
    written = html.unescape(literal[-HOST_MAX:]).replace("\\", "/")
    begin = written.rfind("://")
    if begin < 0 and host is None:
        return None
    more = written[begin + 3 :] if begin >= 0 else html.unescape(literal)
    return None if _AUTHORITY_END.search(more) else (host or "") * (begin < 0) + more


def _in_host(slot: Slot, host: str, after: str) -> Slot:
    """Mark a slot after a complete host as the start of the path, otherwise as part of the host.

    The host is incomplete after a dot or before more text.
    """
    is_whole = host and host[-1] not in ".:" and (not after or _AUTHORITY_END.match(after))
    return msgspec.structs.replace(slot, begins_path=True) if is_whole else msgspec.structs.replace(slot, place="host")


def _in_mailbox(slot: Slot, before: str, after: str) -> Slot:
    """Set the place of a slot in a mailto.

    If the template has the host, a value may only be part of it or of the local part.
    """
    before_host, begin = _BEFORE_HOST, before.find("?")
    if begin >= 0:
        before_host, slot = _BEFORE_HOST_IN_FIELD, msgspec.structs.replace(slot, place="query")
        name, is_named, before = before[max(begin, before.rfind("&")) + 1 :].partition("=")
        if not is_named:
            return msgspec.structs.replace(slot, place="local")
        if MASK not in name and unquote(name).strip().lower() not in _GETS_IT:
            return slot
    host = re.split("[,;]", read_mailbox(before[-HOST_MAX:]))[-1].partition("@")
    after = read_mailbox(after)
    if not host[1]:
        return msgspec.structs.replace(slot, place="local") if before_host.match(after) else slot
    is_whole = host[2][-1:] not in ("", ".") and not _IN_HOST.match(after)
    return msgspec.structs.replace(slot, place="refused" if is_whole else "host")


def read_mailbox(text: str) -> str:
    """Decode the address separators (@ , ;) of a mailto, as mail clients do."""
    return _ENCODED.sub(lambda found: unquote(found[0]), text)


def _slot(token: re.Match[str], place: Place, faults: Faults) -> Slot | None:
    scope, name, kind, argument = token.group(1, 2, 3, 4)
    if token[10]:
        scope, name = "content", ""
        if place not in ("plain", "text"):
            faults.add("misplaced_placeholder", token.start(), "{{content}} stands between tags, never inside one")
    if scope is None:
        return None
    format_ = read_format(kind, argument) if kind else None
    if isinstance(format_, str):
        faults.add("unknown_format", token.start(), format_)
        format_ = None
    return Slot(scope, name, place, format_)  # type: ignore[arg-type]


def _tag(token: re.Match[str], place: Place) -> _Tag:
    opens, scope, name, turns, closes = token.group(5, 6, 7, 8, 9)
    return _Tag(opens or turns or closes, scope or "", name or "", token.start(), place)


def _cut_address(source: str, stretch: Stretch, faults: Faults) -> "Iterator[str | Slot | UrlAttribute | _Tag]":
    """Yield the pieces of an address; yield only # if its beginning can never be safe."""
    pieces: list[str | Slot] = []
    before, host = "", None
    cut = list(_cut(source, stretch.start, stretch.end, "address", faults))
    after = _literals_after(cut)
    for at, piece in enumerate(cut):
        if isinstance(piece, _Tag):
            yield piece
            continue
        if isinstance(piece, str):
            text = html.unescape(piece).translate(_UNREAD)
            begun = HOST.fullmatch(text)
            if pieces and host is not None:
                host = None if _PATH.search(text) else host + text
            elif not pieces and begun:
                host = begun[1]
            before += text
        elif host is not None:
            piece, host = _in_host(piece, host, after[at]), host + MASK
        elif _MAILTO.match(before):
            near = "".join(one for one in cut[at + 1 : at + _NEAR] if isinstance(one, str))
            piece, before = _in_mailbox(piece, before, html.unescape(near[:HOST_MAX])), before + MASK
        elif "?" in before:
            piece = msgspec.structs.replace(piece, place="query")
        pieces.append(piece)
    first = html.unescape(pieces[0]) if pieces and isinstance(pieces[0], str) else ""
    if SAFE_ADDRESS.match(first):
        yield from pieces
    elif first.strip(BLANK):
        told = f"{stretch.what} must begin with https:, http:, mailto:, tel: or with a placeholder"
        faults.add("unsafe_address", stretch.start, told)
        yield "#"
    elif pieces:
        yield UrlAttribute(tuple(pieces))
