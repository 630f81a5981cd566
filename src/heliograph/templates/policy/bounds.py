"""The most that a template can become, whatever values its variables may have (contract 18).

Each variable is in a state: absent or false, or as long as it may be and of the characters that cost most somewhere:
letters in a host, quotes in HTML, characters of four octets in plain text and addresses. What a template becomes is a
sum of terms, each under the states that it needs, and of lists, whose items are such a sum again; variables that meet
in no term are looked at one by one.
"""

import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache, partial, reduce
from itertools import product
from math import prod
from typing import TypeGuard
from zoneinfo import ZoneInfo

import msgspec
from babel.dates import format_date, format_time, get_datetime_format

from heliograph.domain.limits import BODY_OCTETS_MAX, SUBJECT_OCTETS_MAX
from heliograph.domain.phones.gsm import PART, SINGLE, Encoding, segment
from heliograph.domain.setup.records import Layout, Segmenting, Shape, Template
from heliograph.templates.policy.formats import (
    NUMBERS,
    Region,
    ValueFormat,
    Width,
    formatted,
    locale_of,
    plain_spaces,
)
from heliograph.templates.policy.locales import in_locale
from heliograph.templates.policy.markup import BLANK
from heliograph.templates.policy.render import begin_path, escaped, in_direction, octets
from heliograph.templates.policy.source import (
    PARTS,
    Each,
    If,
    Piece,
    Pieces,
    Place,
    Slot,
    UrlAttribute,
    compiled,
)
from heliograph.templates.policy.values import asked_names, formatted_uses, read_variables

NEVER = -(10**15)  # of what cannot be: nothing that is added makes it possible
TOGETHER_MAX = 4096  # states of variables that are looked at together; of more, pairs alone
ADDRESS_MAX = 64  # states of the variables of one address that are
BRANDS_MAX = 8  # brands that are looked at one by one; of more, the most of each
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
    apart = [[brand] for brand in brands] if len(brands) <= BRANDS_MAX else [brands]
    sums = (_Sum(one, some, layout).most() for one in languages for some in apart or [brands])
    most = reduce(Size.__or__, sums)
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
        self._items: dict[str, dict[tuple[Key, Key], Size]] = {}  # of one item of a list, by the states around it
        self._part = ""

    def most(self) -> Size:
        for part in PARTS:
            if (source := getattr(self._template, part)) is not None:
                self._part = part
                around = getattr(self._layout, part, None) if part in ("html", "text") else None
                if around is not None:
                    around = in_direction(around, self._template.locale) if part == "html" else around
                    self._add_all(compiled(around, part == "html").pieces, ALWAYS, None, ALWAYS)
                self._add_all(compiled(source, part == "html").pieces, ALWAYS, None, ALWAYS)
        terms: list[_Term | _Items] = [_Term(key, size) for key, size in self._terms.items()]
        for name, sizes in self._items.items():
            terms.append(_Items(sizes, self._template.shapes[name].max, partial(self._states, name)))
        return _most(terms, partial(self._states, None))

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
        if list_ is None:
            self._terms[outer] = self._terms.get(outer, NOTHING) + size
        else:
            sizes = self._items.setdefault(list_, {})
            sizes[outer, inner] = sizes.get((outer, inner), NOTHING) + size

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
                    for around, own, size in self._sizes(piece, list_):
                        self._add(outer | around, list_, inner | own, size)

    def _sizes(self, piece: Piece, list_: str | None) -> Iterator[tuple[Key, Key, Size]]:
        """Yield the sizes of a literal, a slot or an address in the states of its variables, and of an item's."""
        match piece:
            case str():
                yield ALWAYS, ALWAYS, self._literal(piece)
            case UrlAttribute():
                yield from self._addresses(piece, list_)
            case Slot(scope="brand"):
                values = (brand.get(piece.name, "") for brand in self._brands)
                texts = (escaped(piece.place, begin_path(one) if piece.begins_path and one else one) for one in values)
                yield ALWAYS, ALWAYS, reduce(Size.__or__, map(self._literal, texts), NOTHING)
            case Slot(scope="customer" | "item"):
                of = list_ if piece.scope == "item" else None
                slash = self._literal("/" if piece.begins_path else "")
                for state in self._states(of, piece.name):
                    key = frozenset({(piece.name, state)})
                    size = self._slot(piece, of, state) + slash
                    yield (key, ALWAYS, size) if of is None else (ALWAYS, key, size)

    def _addresses(self, address: UrlAttribute, list_: str | None) -> Iterator[tuple[Key, Key, Size]]:
        """Yield the sizes of an address in the states of its variables together; of many, the most of all."""
        asked = {(list_ if one.scope == "item" else None, one.name): one for one in address.pieces if _is_asked(one)}
        states = [self._states(*one) for one in asked]
        if prod(map(len, states)) > ADDRESS_MAX:
            each = [reduce(Size.__or__, (size for _, _, size in self._sizes(one, list_))) for one in address.pieces]
            yield ALWAYS, ALWAYS, reduce(Size.__add__, each, HASH) + Size(len(each))
            return
        for at in product(*states):
            found = dict(zip(asked, at, strict=True))
            outer = frozenset((name, state) for (of, name), state in found.items() if of is None)
            inner = frozenset((name, state) for (of, name), state in found.items() if of is not None)
            yield outer, inner, Size(self._address(address.pieces, list_, found)) | HASH

    def _address(
        self, pieces: Sequence[str | Slot], list_: str | None, at: Mapping[tuple[str | None, str], str]
    ) -> int:
        """Return its octets where its first value has the shortest scheme; none where nothing can: it becomes #."""
        most, spared = len(pieces) // 2, None  # slashes behind a host
        for place, one in enumerate(pieces):
            of = list_ if isinstance(one, Slot) and one.scope == "item" else None
            state = at.get((of, one.name), "") if isinstance(one, Slot) else ""
            if isinstance(one, str) or one.scope == "brand":
                octets_ = reduce(Size.__or__, (size for _, _, size in self._sizes(one, list_))).octets
            else:
                octets_ = self._slot(one, of, state).octets
            if spared is None and isinstance(one, str) and one.strip(BLANK):
                return 0
            if spared is None and isinstance(one, Slot):
                if state == FALSE or not octets_:  # an empty value: the next one begins
                    continue
                if one.format and state != FALLBACK:
                    return 0
                spared = 0
                if one.scope != "brand" and state != FALLBACK:
                    length = self._template.shapes[of or one.name].max_length or 0
                    after = pieces[place + 1] if place + 1 < len(pieces) else ""
                    needed = len("tel") if isinstance(after, str) and ":" in html.unescape(after)[:1] else len("tel:")
                    if length >= needed:
                        spared = (octets_ // length - 1) * needed
                    elif not any(isinstance(more, Slot) for more in pieces[place + 1 :]):
                        return 0
            most += octets_
        return most - spared if spared is not None else 0

    def _literal(self, text: str) -> Size:
        return size_of(text) if self._part == "body" else Size(octets(text))

    def _slot(self, slot: Slot, list_: str | None, state: str) -> Size:
        most = self._template.shapes[list_ or slot.name].max_length or 0
        if slot.place == "refused":
            return NOTHING
        if state == FALLBACK:
            text = self._fallback[slot.name]
            text = formatted(slot.format, text, self._region) if slot.format and text else text
            return self._literal(escaped(slot.place, text))
        if state == FALSE:
            return self._literal("false" if most >= len("false") and not slot.format else "")
        if slot.format:
            is_number = slot.format.kind in NUMBERS  # of others it matters only whether they fit
            chars = most if is_number else max(one for one in (0, DAY_CHARS, TIME_CHARS) if one <= most)
            return format_size(slot.format, self._region, min(chars, FORMATTED_CHARS), slot.place, self._part == "body")
        if (list_, slot.name) in self._formatted:
            most = min(most, FORMATTED_CHARS)
        if slot.place == "host" and state != LETTERS:  # a value may be a whole link elsewhere: its scheme has letters
            return self._literal("tel"[:most] if self._part != "body" else "")
        # An extension character of the GSM alphabet counts twice, and is as much as any in UCS-2.
        size = self._literal(escaped(slot.place, _CHARACTERS[state])).times(most)
        return size if state != WIDE else size | Size(0, 2 * most)


def _is_asked(piece: str | Slot) -> TypeGuard[Slot]:
    return isinstance(piece, Slot) and piece.scope in ("customer", "item")


class _Term(msgspec.Struct, frozen=True):
    needs: Key
    size: Size

    def held(self, at: Mapping[str, str]) -> Size:
        return self.size if _hold(self.needs, at) else NOTHING


class _Items:
    """A list at its longest: each item is what becomes the most where these states are around it."""

    def __init__(self, sizes: Mapping[tuple[Key, Key], Size], count: int, states_of: StatesOf) -> None:
        self.needs: Key = frozenset(literal for outer, _ in sizes for literal in outer)
        self._sizes = sizes
        self._count = count
        self._states_of = states_of
        self._found: dict[frozenset[Key], Size] = {}

    def held(self, at: Mapping[str, str]) -> Size:
        return self._most(frozenset(outer for outer, _ in self._sizes if _hold(outer, at)))

    def apart(self) -> "list[_Term]":
        """Return the most of each state around it by itself: never too little."""
        return [_Term(outer, self._most(frozenset({outer}))) for outer in {outer for outer, _ in self._sizes}]

    def _most(self, outer: frozenset[Key]) -> Size:
        if (found := self._found.get(outer)) is None:
            sizes: dict[Key, Size] = {}
            for (around, inner), size in self._sizes.items():
                if around in outer:
                    sizes[inner] = sizes.get(inner, NOTHING) + size
            terms = [_Term(key, size) for key, size in sizes.items()]
            found = self._found[outer] = _most(terms, self._states_of).times(self._count)
        return found


def _most(terms: "Sequence[_Term | _Items]", states_of: StatesOf) -> Size:
    """Return the largest sum of terms that hold together."""
    total = reduce(Size.__add__, (term.held({}) for term in terms if not term.needs), NOTHING)
    for group in _groups([term for term in terms if term.needs], states_of):
        choices = _choices(group, states_of)
        sums = (
            reduce(Size.__add__, (term.held(at) for term in group))
            for at in (dict(zip(choices, states, strict=True)) for states in product(*choices.values()))
        )
        total += reduce(Size.__or__, sums)
    return total


def _choices(group: "Sequence[_Term | _Items]", states_of: StatesOf) -> dict[str, list[str]]:
    """Return the states of their variables that make a difference."""
    needed = {literal for term in group for literal in term.needs}
    return {
        name: [state for state in states_of(name) if state in (LETTERS, FALSE) or (name, state) in needed]
        for name in sorted({name for name, _ in needed})
    }


def _hold(needs: Key, at: Mapping[str, str]) -> bool:
    return all(at[name] != FALSE if state is None else at[name] == state for name, state in needs)


def _groups(terms: "Sequence[_Term | _Items]", states_of: StatesOf) -> "Iterator[Sequence[_Term | _Items]]":
    """Yield the terms whose variables meet; where too many do, lists apart, then those of the same variables alone."""
    for group in _meeting(terms):
        if _count_states(group, states_of) <= TOGETHER_MAX:
            yield group
        elif any(isinstance(term, _Items) for term in group):
            apart = [one for term in group for one in (term.apart() if isinstance(term, _Items) else [term])]
            yield [one for one in apart if not one.needs]
            yield from _groups([one for one in apart if one.needs], states_of)
        else:
            alone: dict[frozenset[str], list[_Term | _Items]] = {}
            for term in group:
                alone.setdefault(frozenset(name for name, _ in term.needs), []).append(term)
            yield from alone.values()


def _count_states(group: "Sequence[_Term | _Items]", states_of: StatesOf) -> int:
    return prod(map(len, _choices(group, states_of).values()))


def _meeting(terms: "Sequence[_Term | _Items]") -> "Iterable[list[_Term | _Items]]":
    leader: dict[str, str] = {}

    def lead(name: str) -> str:
        while leader.setdefault(name, name) != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    for term in terms:
        first, *others = sorted({name for name, _ in term.needs})
        for other in others:
            leader[lead(other)] = lead(first)
    together: dict[str, list[_Term | _Items]] = {}
    for term in terms:
        together.setdefault(lead(next(iter(term.needs))[0]), []).append(term)
    return together.values()


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
    joined = size(f"0{between}0")  # an address drops spaces at its ends alone
    return reduce(Size.__or__, (days[m] + times[m] for m in MONTHS)) + joined + Size(-2, -2, -2)


def _numbers(most: int) -> Iterator[str]:
    """Yield a number for each sign and count of digits that fit in so many characters, by an exponent where shorter."""
    for sign, digits, decimals in product(("", "-"), range(1, 16), range(5)):
        plain = digits + (decimals + 1 if decimals else 0)
        short = 2 + len(str(digits - 1)) if not decimals else 4 if digits == 1 else plain
        if len(sign) + min(plain, short) <= most:
            for decimal in "19" if decimals else "1":  # what is rounded up has a digit more
                yield f"{sign}{'9' * digits}{'.' + decimal * decimals if decimals else ''}"


def _moments(zone: ZoneInfo, month: int) -> Iterator[datetime]:
    """Yield every hour of a day of this month in every manner that the zone has told its time since 1840."""
    seen: dict[tuple[object, ...], datetime] = {}
    for year in range(1840, 2041):
        at = datetime(year, month, 15, tzinfo=UTC)
        there = at.astimezone(zone)
        seen.setdefault((there.utcoffset(), there.dst(), there.tzname()), at)
    for at in seen.values():
        yield from (at.replace(hour=hour, minute=58, second=58) for hour in range(24))
