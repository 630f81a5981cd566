"""Upper bounds of a template's rendered size, segments and price for any allowed values (contract 18).

Each variable is in one of a few states: absent or false, or at its maximum length with the most expensive characters of
some context (letters in a host, quotes in HTML, four-octet characters in plain text and addresses). The size is a sum
of terms, each conditional on states, and of lists, whose items are such sums. Variables that share no term are
maximised independently.
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

NEVER = -(10**15)  # size of an impossible case; no addition makes it positive
TOGETHER_MAX = 4096  # maximum state combinations examined together; above it, terms with the same variables only
ADDRESS_MAX = 64  # maximum state combinations of one address
BRANDS_MAX = 8  # maximum brands examined separately; above it, the maximum of each value
DAY_CHARS, TIME_CHARS = 10, 20  # minimum characters of a date and of a time
FORMATTED_CHARS = 42  # maximum characters of a value that a format accepts

LETTERS, QUOTES, WIDE, FALSE, FALLBACK = "letters", "quotes", "wide", "false", "fallback"
_CHARACTERS = {LETTERS: "a", QUOTES: '"', WIDE: "\U0001f600"}

Literal = tuple[str, str | None]  # a variable and its required state; None if it must be present
Key = frozenset[Literal]
ALWAYS: Key = frozenset()
StatesOf = Callable[[str], list[str]]


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    octets: int  # UTF-8 octets of all parts together
    segments: int | None  # segments of an SMS
    price: int  # price of one send to the most expensive country


class Size(msgspec.Struct, frozen=True):
    octets: int = 0
    gsm: int = 0  # units in the GSM alphabet
    ucs2: int = 0  # units in UCS-2, for any characters
    foreign: int = NEVER  # units in UCS-2 if a character is outside the GSM alphabet

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
    """Return upper bounds for the template; None if a variable declares no maximum length."""
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
    # A part may have an unused unit, because a surrogate or escape pair is not split.
    return -(-units // (PART[encoding] - 1 if segmenting == "udh" else SINGLE[encoding]))


class _Sum:
    """The size of a template in one language, as terms conditional on the states of variables."""

    def __init__(self, template: Template, brands: Sequence[Mapping[str, str]], layout: Layout | None) -> None:
        self._template = template
        self._brands = brands
        self._layout = layout
        self._region = Region(template.locale, template.timezone)
        self._formatted = {(use.list, use.name) for use in formatted_uses(template)}
        self._fallback = read_variables(template.fallback).texts
        self._terms: dict[Key, Size] = {}
        self._items: dict[str, dict[tuple[Key, Key], Size]] = {}  # sizes of a list item, by (outer, item) states
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
        """Yield (outer states, item states, size) of a literal, a slot or an address."""
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
        """Yield the sizes of an address for each combination of states; above ADDRESS_MAX, only the maximum."""
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
        """Return the octets of an address whose first value has the shortest scheme; 0 if it is rendered as #."""
        most, spared = len(pieces) // 2, None  # path separators after the host
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
                if state == FALSE or not octets_:  # an empty value: the next one starts the address
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
            is_number = slot.format.kind in NUMBERS  # for times only whether the text fits matters
            chars = most if is_number else max(one for one in (0, DAY_CHARS, TIME_CHARS) if one <= most)
            return format_size(slot.format, self._region, min(chars, FORMATTED_CHARS), slot.place, self._part == "body")
        if (list_, slot.name) in self._formatted:
            most = min(most, FORMATTED_CHARS)
        if slot.place == "host" and state != LETTERS:  # a value can be a whole URL elsewhere: its scheme has letters
            return self._literal("tel"[:most] if self._part != "body" else "")
        # A GSM extension character counts twice, as much as any character in UCS-2.
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
    """A list at its maximum length; each item has the maximum size under the given outer states."""

    def __init__(self, sizes: Mapping[tuple[Key, Key], Size], count: int, states_of: StatesOf) -> None:
        self.needs: Key = frozenset(literal for outer, _ in sizes for literal in outer)
        self._sizes = sizes
        self._count = count
        self._states_of = states_of
        self._found: dict[frozenset[Key], Size] = {}

    def held(self, at: Mapping[str, str]) -> Size:
        return self._most(frozenset(outer for outer, _ in self._sizes if _hold(outer, at)))

    def apart(self) -> "list[_Term]":
        """Return a term for the maximum of each outer state independently; never an underestimate."""
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
    """Return the maximum sum of terms over all state combinations."""
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
    """Return the states of the terms' variables that affect the size."""
    needed = {literal for term in group for literal in term.needs}
    return {
        name: [state for state in states_of(name) if state in (LETTERS, FALSE) or (name, state) in needed]
        for name in sorted({name for name, _ in needed})
    }


def _hold(needs: Key, at: Mapping[str, str]) -> bool:
    return all(at[name] != FALSE if state is None else at[name] == state for name, state in needs)


def _groups(terms: "Sequence[_Term | _Items]", states_of: StatesOf) -> "Iterator[Sequence[_Term | _Items]]":
    """Yield groups of terms that share variables. Too large groups are split: first lists, then by equal variables."""
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
    """Return the maximum size of any formattable value of at most `most` characters."""

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
    joined = size(f"0{between}0")  # an address strips spaces only at its ends
    return reduce(Size.__or__, (days[m] + times[m] for m in MONTHS)) + joined + Size(-2, -2, -2)


def _numbers(most: int) -> Iterator[str]:
    """Yield a number for each sign and digit count that fits in `most` characters, with an exponent if shorter."""
    for sign, digits, decimals in product(("", "-"), range(1, 16), range(5)):
        plain = digits + (decimals + 1 if decimals else 0)
        short = 2 + len(str(digits - 1)) if not decimals else 4 if digits == 1 else plain
        if len(sign) + min(plain, short) <= most:
            for decimal in "19" if decimals else "1":  # rounding up may add a digit
                yield f"{sign}{'9' * digits}{'.' + decimal * decimals if decimals else ''}"


def _moments(zone: ZoneInfo, month: int) -> Iterator[datetime]:
    """Yield every hour of a day in this month for every UTC offset that the zone has had since 1840."""
    seen: dict[tuple[object, ...], datetime] = {}
    for year in range(1840, 2041):
        at = datetime(year, month, 15, tzinfo=UTC)
        there = at.astimezone(zone)
        seen.setdefault((there.utcoffset(), there.dst(), there.tzname()), at)
    for at in seen.values():
        yield from (at.replace(hour=hour, minute=58, second=58) for hour in range(24))
