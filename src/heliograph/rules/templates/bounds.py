"""The most that a template can become, whatever values its variables may have (contract 18).

Each variable is in a state: absent or false, or as long as it may be and of the characters that cost most somewhere:
letters in a host, quotes in HTML, characters of four octets in plain text and addresses. What a template becomes is a
sum of terms, each under the states that it needs; variables that meet in no term are looked at one by one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache, reduce
from itertools import product
from math import prod
from zoneinfo import ZoneInfo

import msgspec
from babel.dates import format_date, format_time, get_datetime_format

from heliograph.rules.limits import BODY_OCTETS_MAX, SUBJECT_OCTETS_MAX
from heliograph.rules.phones.gsm import PART, SINGLE, Encoding, segment
from heliograph.rules.setup.records import Layout, Segmenting, Shape, Template
from heliograph.rules.templates.formats import NUMBERS, Region, ValueFormat, Width, formatted, locale_of, plain_spaces
from heliograph.rules.templates.locales import in_locale
from heliograph.rules.templates.render import begin_path, escaped, octets
from heliograph.rules.templates.source import PARTS, Each, If, Piece, Pieces, Place, Slot, UrlAttribute, compiled
from heliograph.rules.templates.values import asked_names, formatted_uses, read_variables

NEVER = -(10**15)  # of what cannot be: nothing that is added makes it possible
TOGETHER_MAX = 4096  # states of variables that are looked at together; of more, pairs alone
DAY_CHARS, TIME_CHARS = 10, 20  # that a date and a time have at least
FORMATTED_CHARS = 42  # that a value has at most which a format can write

LETTERS, QUOTES, WIDE, FALSE, FALLBACK = "letters", "quotes", "wide", "false", "fallback"
_CHARACTERS = {LETTERS: "a", QUOTES: '"', WIDE: "\U0001f600"}

Literal = tuple[str, str | None]  # a variable and its state; None: it is there
Key = frozenset[Literal]
ALWAYS: Key = frozenset()
StatesOf = Callable[[str], list[str]]


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    octets: int  # of all parts together, in UTF-8
    segments: int | None  # of an SMS
    price: int  # of one send in the dearest country


class Size(msgspec.Struct, frozen=True):
    octets: int = 0
    gsm: int = 0  # units in the GSM alphabet
    ucs2: int = 0  # units in UCS-2, whatever characters it has
    foreign: int = NEVER  # units in UCS-2 where a character is outside the GSM alphabet

    def __add__(self, other: "Size") -> "Size":
        foreign = max(self.foreign + other.ucs2, self.ucs2 + other.foreign)
        return Size(self.octets + other.octets, self.gsm + other.gsm, self.ucs2 + other.ucs2, foreign)

    def __or__(self, other: "Size") -> "Size":
        return Size(*map(max, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))

    def times(self, count: int) -> "Size":
        foreign = self.foreign + self.ucs2 * (count - 1)
        return Size(self.octets * count, self.gsm * count, self.ucs2 * count, foreign)


NOTHING = Size()
HASH = Size(1, 1, 1)
NO_SIZE = Size(0, NEVER, 0, NEVER)
MONTHS = range(1, 13)


def size_of(text: str) -> Size:
    counted = segment(text)
    ucs2 = len(text.encode("utf-16-le", "surrogatepass")) // 2
    return (
        Size(octets(text), counted.units, ucs2) if counted.encoding == "gsm7" else Size(octets(text), NEVER, ucs2, ucs2)
    )


def bounds_of(
    template: Template, brands: Sequence[Mapping[str, str]], layout: Layout | None, segmenting: Segmenting
) -> Bounds | None:
    """Bound what the template becomes; None: a variable does not say how long it may be."""
    if any(template.shapes.get(name, Shape()).max_length is None for name in asked_names(template)):
        return None
    languages = [in_locale(template, tag) for tag in (None, *template.locales)]
    most = reduce(Size.__or__, (_Sum(one, brands, layout).most() for one in languages))
    segments = _segments(most, segmenting) if template.channel == "sms" else None
    price = max(template.price, *template.prices.values()) if template.prices else template.price
    return Bounds(
        octets=min(most.octets, BODY_OCTETS_MAX + SUBJECT_OCTETS_MAX), segments=segments, price=price * (segments or 1)
    )


def _segments(most: Size, segmenting: Segmenting) -> int:
    counted: tuple[tuple[Encoding, int], ...] = (("gsm7", most.gsm), ("ucs2", most.foreign))
    return max(_count(units, encoding, segmenting) for encoding, units in counted)


def _count(units: int, encoding: Encoding, segmenting: Segmenting) -> int:
    if units <= SINGLE[encoding]:
        return 1
    # A part may have a unit left over, where a pair would be cut.
    return -(-units // (PART[encoding] - 1 if segmenting == "udh" else SINGLE[encoding]))


class _Sum:
    """What a template becomes in one language, as terms by the states that they need."""

    def __init__(self, template: Template, brands: Sequence[Mapping[str, str]], layout: Layout | None) -> None:
        self._template = template
        self._brands = brands
        self._layout = layout
        self._region = Region(template.locale, template.timezone)
        self._formatted = {(use.list, use.name) for use in formatted_uses(template)}
        self._fallback = read_variables(template.fallback).texts
        self._terms: dict[Key, Size] = {}
        self._items: dict[tuple[str, Key], dict[Key, Size]] = {}  # of one item of a list, where these states are
        self._part = ""

    def most(self) -> Size:
        for part in PARTS:
            if (source := getattr(self._template, part)) is not None:
                self._part = part
                around = getattr(self._layout, part, None) if part in ("html", "text") else None
                if around is not None:
                    self._add_all(compiled(around, part == "html").pieces, ALWAYS, None, ALWAYS)
                self._add_all(compiled(source, part == "html").pieces, ALWAYS, None, ALWAYS)
        for (name, outer), terms in self._items.items():
            one = _most(terms, lambda field, name=name: self._states(name, field))  # type: ignore[misc]
            self._add(outer, None, ALWAYS, one.times(self._template.shapes[name].max))
        return _most(self._terms, lambda name: self._states(None, name))

    def _states(self, list_: str | None, name: str) -> list[str]:
        if list_ is None and self._template.shapes.get(name, Shape()).list:
            return [LETTERS, FALSE]
        if (list_, name) in self._formatted:
            is_optional = list_ is None and name in self._template.optional and name not in self._fallback
            own = [LETTERS, FALSE] if is_optional else [LETTERS]
        else:
            own = [*_CHARACTERS, FALSE]
        return [*own, FALLBACK] if list_ is None and name in self._fallback else own

    def _add(self, outer: Key, list_: str | None, inner: Key, size: Size) -> None:
        terms, key = (self._terms, outer) if list_ is None else (self._items.setdefault((list_, outer), {}), inner)
        terms[key] = terms[key] + size if key in terms else size

    def _add_all(self, pieces: Pieces, outer: Key, list_: str | None, inner: Key) -> None:
        for piece in pieces:
            match piece:
                case Each(name=name):
                    self._add_all(piece.pieces, outer | {(name, None)}, name, ALWAYS)
                    self._add_all(piece.otherwise, outer | {(name, FALSE)}, None, ALWAYS)
                case If(scope="item", name=name):
                    self._add_all(piece.pieces, outer, list_, inner | {(name, None)})
                    self._add_all(piece.otherwise, outer, list_, inner | {(name, FALSE)})
                case If(name=name):
                    self._add_all(piece.pieces, outer | {(name, None)}, list_, inner)
                    self._add_all(piece.otherwise, outer | {(name, FALSE)}, list_, inner)
                case _:
                    for states, size in self._sizes(piece, list_):
                        is_item = isinstance(piece, Slot) and piece.scope == "item"
                        self._add(
                            outer | (ALWAYS if is_item else states),
                            list_,
                            inner | (states if is_item else ALWAYS),
                            size,
                        )

    def _sizes(self, piece: Piece, list_: str | None) -> Iterator[tuple[Key, Size]]:
        """Yield the sizes of a literal or a slot, in each state of its variable; of an address, whatever the states."""
        match piece:
            case str():
                yield ALWAYS, self._literal(piece)
            case UrlAttribute():
                yield ALWAYS, self._address(piece, list_) | HASH
            case Slot(scope="brand"):
                values = (brand.get(piece.name, "") for brand in self._brands)
                texts = (escaped(piece.place, begin_path(one) if piece.begins_path and one else one) for one in values)
                yield ALWAYS, reduce(Size.__or__, map(self._literal, texts), NOTHING)
            case Slot(scope="customer" | "item"):
                of = list_ if piece.scope == "item" else None
                slash = self._literal("/" if piece.begins_path else "")
                for state in self._states(of, piece.name):
                    yield frozenset({(piece.name, state)}), self._slot(piece, of, state) + slash

    def _address(self, address: UrlAttribute, list_: str | None) -> Size:
        """Size an address with the shortest scheme in its first
        value where only that one can have it; # where none can.
        """
        free = [one for one in address.pieces if isinstance(one, Slot) and not one.format]
        each = (reduce(Size.__or__, (size for _, size in self._sizes(one, list_))) for one in address.pieces)
        most = reduce(Size.__add__, each, NOTHING).octets
        most += sum(isinstance(one, Slot) for one in address.pieces) - 1  # a slash behind a host
        if len(free) == 1 and free[0].scope != "brand":
            spared = self._template.shapes[list_ if free[0].scope == "item" and list_ else free[0].name].max_length or 0
            if free[0].name not in self._fallback:
                most -= (
                    (octets(escaped("address", _CHARACTERS[WIDE])) - 1) * len("tel:") if spared >= len("tel:") else most
                )
        return Size(most if free else 0)

    def _literal(self, text: str) -> Size:
        return size_of(text) if self._part == "body" else Size(octets(text))

    def _slot(self, slot: Slot, list_: str | None, state: str) -> Size:
        most = self._template.shapes[list_ or slot.name].max_length or 0
        if state == FALLBACK:
            text = self._fallback[slot.name]
            text = formatted(slot.format, text, self._region) if slot.format and text else text
            return self._literal(escaped(slot.place, text))
        if state == FALSE:
            return self._literal("false" if most >= len("false") and not slot.format else "")
        if slot.format:
            return format_size(slot.format, self._region, min(most, FORMATTED_CHARS), slot.place, self._part == "body")
        if (list_, slot.name) in self._formatted:
            most = min(most, FORMATTED_CHARS)
        # An extension character of the GSM alphabet counts twice, and is as much as any in UCS-2.
        size = self._literal(escaped(slot.place, _CHARACTERS[state])).times(most)
        return size if slot.place == "host" or state != WIDE else size | Size(0, 2 * most)


def _most(terms: Mapping[Key, Size], states_of: StatesOf) -> Size:
    """Return the largest sum of terms that hold together."""
    total = terms.get(ALWAYS, NOTHING)
    for group in _groups([key for key in terms if key], states_of):
        names = sorted({name for key in group for name, _ in key})
        needed = {literal for key in group for literal in key}
        choices = [[state for state in states_of(name) if _matters(name, state, needed)] for name in names]
        total += reduce(
            Size.__or__, (_held(terms, group, dict(zip(names, at, strict=True))) for at in product(*choices))
        )
    return total


def _matters(name: str, state: str, needed: set[Literal]) -> bool:
    return state in (LETTERS, FALSE) or (name, state) in needed


def _held(terms: Mapping[Key, Size], group: Iterable[Key], at: Mapping[str, str]) -> Size:
    held = (terms[key] for key in group if all(_holds(at[name], state) for name, state in key))
    return reduce(Size.__add__, held, NOTHING)


def _holds(state: str, needed: str | None) -> bool:
    return state != FALSE if needed is None else state == needed


def _groups(keys: Sequence[Key], states_of: StatesOf) -> Iterator[list[Key]]:
    """Yield the keys whose variables meet; where too many do, those of the same variables alone: never too little."""
    leader: dict[str, str] = {}

    def lead(name: str) -> str:
        while leader.setdefault(name, name) != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    for key in keys:
        first, *others = sorted({name for name, _ in key})
        for other in others:
            leader[lead(other)] = lead(first)
    together: dict[str, list[Key]] = {}
    for key in keys:
        together.setdefault(lead(next(iter(key))[0]), []).append(key)
    for group in together.values():
        names = {name for key in group for name, _ in key}
        if prod(len(states_of(name)) for name in names) <= TOGETHER_MAX:
            yield group
            continue
        alone: dict[frozenset[str], list[Key]] = {}
        for key in group:
            alone.setdefault(frozenset(name for name, _ in key), []).append(key)
        yield from alone.values()


@lru_cache(maxsize=1024)
def format_size(wanted: ValueFormat, region: Region, most: int, place: Place, is_body: bool) -> Size:
    """Return the largest size of any value of so many characters that the format can write."""

    def size(text: str) -> Size:
        text = escaped(place, plain_spaces(text) if is_body else text)
        return size_of(text) if is_body else Size(octets(text))

    def largest(texts: Iterable[str]) -> Size:
        return reduce(Size.__or__, map(size, texts), NO_SIZE)

    if wanted.kind in NUMBERS:
        return largest(formatted(wanted, given, region) for given in _numbers(most))
    if most < (DAY_CHARS if wanted.kind == "date" else TIME_CHARS):
        return NOTHING
    locale = locale_of(region.locale)
    width: Width = wanted.argument  # type: ignore[assignment]
    days = {m: largest(format_date(date(2026, m, d), width, locale=locale) for d in range(20, 27)) for m in MONTHS}
    if wanted.kind == "date":
        return reduce(Size.__or__, days.values())
    zone = ZoneInfo(region.timezone)
    times = {m: largest(format_time(at, width, tzinfo=zone, locale=locale) for at in _moments(zone, m)) for m in MONTHS}
    if wanted.kind == "time":
        return reduce(Size.__or__, times.values())
    between = str(get_datetime_format(width, locale=locale)).replace("'", "").replace("{0}", "").replace("{1}", "")
    return reduce(Size.__or__, (days[m] + times[m] for m in MONTHS)) + size(between)


def _numbers(most: int) -> Iterator[str]:
    """Yield a number for each sign and count of digits that fit in so many characters, by an exponent where shorter."""
    for sign, digits, decimals in product(("", "-"), range(1, 16), range(5)):
        plain = digits + (decimals + 1 if decimals else 0)
        short = 2 + len(str(digits - 1)) if not decimals else 4 if digits == 1 else plain
        if len(sign) + min(plain, short) <= most:
            yield f"{sign}{'9' * digits}{'.' + '1' * decimals if decimals else ''}"


def _moments(zone: ZoneInfo, month: int) -> Iterator[datetime]:
    """Yield every hour of a day of this month in every manner that the zone has told its time since 1840."""
    seen: dict[tuple[object, ...], datetime] = {}
    for year in range(1840, 2041):
        at = datetime(year, month, 15, tzinfo=UTC)
        there = at.astimezone(zone)
        seen.setdefault((there.utcoffset(), there.dst(), there.tzname()), at)
    for at in seen.values():
        yield from (at.replace(hour=hour, minute=58, second=58) for hour in range(24))
