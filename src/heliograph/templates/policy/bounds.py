"""Upper bounds of a template's rendered size, segments and price for any allowed values (contract 18).

Each variable is in one of a few states: absent or false, or at its maximum length with the most expensive characters of
some context (letters in a host, quotes in HTML, four-octet characters in plain text and addresses). The size is a sum
of terms. A term counts only in certain states of its variables; the term of a list contains such a sum for its items.
Variables that share no term are maximised independently.
"""

import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache, partial, reduce
from itertools import product
from math import prod
from zoneinfo import ZoneInfo

import msgspec
from babel.dates import format_date, format_time, get_datetime_format

from heliograph.domain.limits import BODY_OCTETS_MAX, SUBJECT_OCTETS_MAX
from heliograph.domain.mail.unsubscribe import VARIABLE, longest_url
from heliograph.domain.phones.gsm import MULTIPART_UNITS, SINGLE_PART_UNITS, Encoding, count_segments
from heliograph.domain.setup.records import Layout, Segmenting, Template, VariableType
from heliograph.templates.policy.formats import (
    NUMBER_KINDS,
    FormatWidth,
    Region,
    ValueFormat,
    cldr_locale,
    format_value,
    replace_no_break_spaces,
)
from heliograph.templates.policy.locales import localize
from heliograph.templates.policy.markup import SKIPPED_CHARACTERS
from heliograph.templates.policy.render import escape_value, octets, with_path_separator, with_text_direction
from heliograph.templates.policy.source import (
    PARTS,
    EachBlock,
    EscapeContext,
    IfBlock,
    Piece,
    Pieces,
    Slot,
    UrlAttribute,
    compile_source,
)
from heliograph.templates.policy.values import formatted_uses, read_variables, required_names
from heliograph.templates.policy.variable_types import item_fields_of

IMPOSSIBLE = -(10**15)  # size of an impossible state; remains negative whatever is added
# Above this number of state combinations, terms are grouped only if they use the same variables
COMBINATIONS_MAX = 4096
ADDRESS_COMBINATIONS_MAX = 64  # maximum state combinations examined for one address
BRANDS_MAX = 8  # above this number of brands, the largest value of each brand field is assumed
DATE_CHARS_MIN, TIME_CHARS_MIN = 10, 20  # minimum characters of a date and of a time
FORMATTABLE_CHARS_MAX = 42  # maximum characters of a value that a format accepts

LETTERS, QUOTES, WIDE, FALSE, FALLBACK = "letters", "quotes", "wide", "false", "fallback"
_CHARACTER_BY_STATE = {LETTERS: "a", QUOTES: '"', WIDE: "\U0001f600"}

Condition = tuple[str, str | None]  # (variable, required state); None: any state but absent or false
Conditions = frozenset[Condition]
UNCONDITIONAL: Conditions = frozenset()
StatesOf = Callable[[str], list[str]]  # returns a variable's possible states


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Upper bounds of the size, segments and price of one rendered message."""

    octets: int  # UTF-8 octets of all parts together
    segments: int | None  # segments of an SMS
    price: int  # price of one send to the most expensive country


class Size(msgspec.Struct, frozen=True):
    """Size of a text in octets and in SMS units. `+` concatenates; `|` takes the maximum of each field."""

    octets: int = 0
    gsm: int = 0  # units if encoded in the GSM alphabet; IMPOSSIBLE if a character is not in it
    ucs2: int = 0  # units if encoded in UCS-2
    foreign: int = IMPOSSIBLE  # like `ucs2`; IMPOSSIBLE if all characters are in the GSM alphabet

    def __add__(self, other: "Size") -> "Size":
        foreign = max(self.foreign + other.ucs2, self.ucs2 + other.foreign)
        return Size(self.octets + other.octets, self.gsm + other.gsm, self.ucs2 + other.ucs2, foreign)

    def __or__(self, other: "Size") -> "Size":
        return Size(*map(max, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))

    def times(self, count: int) -> "Size":
        foreign = self.foreign + self.ucs2 * (count - 1)
        return Size(self.octets * count, self.gsm * count, self.ucs2 * count, foreign)


ZERO_SIZE = Size()
HASH_SIZE = Size(1, 1, 1)
IMPOSSIBLE_SIZE = Size(0, IMPOSSIBLE, 0, IMPOSSIBLE)
MONTHS = range(1, 13)


def size_of(text: str) -> Size:
    segmented = count_segments(text)
    ucs2 = len(text.encode("utf-16-le", "surrogatepass")) // 2
    return (
        Size(octets(text), segmented.units, ucs2)
        if segmented.encoding == "gsm7"
        else Size(octets(text), IMPOSSIBLE, ucs2, ucs2)
    )


def bounds_of(
    template: Template,
    brands: Sequence[Mapping[str, str]],
    layout: Layout | None,
    segmenting: Segmenting,
    *,
    base_url: str = "",
) -> Bounds | None:
    """Return the maximum size, segments and price of a message; None if a required variable has no maximum length.

    `base_url`: public URL of the service, with which unsubscribe links begin.
    """
    if any(template.shapes.get(name, VariableType()).max_length is None for name in required_names(template)):
        return None
    translations = [localize(template, tag) for tag in (None, *template.locales)]
    brand_groups = [[brand] for brand in brands] if len(brands) <= BRANDS_MAX else [brands]
    url = longest_url(base_url, template.team, [template.locale, *template.locales])
    maxima = (
        _SizeSum(localized, group, layout, url).maximum()
        for localized in translations
        for group in brand_groups or [brands]
    )
    maximum = reduce(Size.__or__, maxima)
    segments: int | None = None
    if template.channel == "sms":
        gsm_segments = _segment_count(maximum.gsm, "gsm7", segmenting)
        segments = max(gsm_segments, _segment_count(maximum.foreign, "ucs2", segmenting))
    price = max(template.price, *template.prices.values()) if template.prices else template.price
    return Bounds(
        octets=min(maximum.octets, BODY_OCTETS_MAX + SUBJECT_OCTETS_MAX),
        segments=segments,
        price=price * (segments or 1),
    )


def _segment_count(units: int, encoding: Encoding, segmenting: Segmenting) -> int:
    if units <= SINGLE_PART_UNITS[encoding]:
        return 1
    # A part may have an unused unit, because a surrogate or escape pair is not split.
    return -(-units // (MULTIPART_UNITS[encoding] - 1 if segmenting == "udh" else SINGLE_PART_UNITS[encoding]))


class _SizeSum:
    """The size of a template in one language, as terms conditional on the states of variables."""

    def __init__(
        self, template: Template, brands: Sequence[Mapping[str, str]], layout: Layout | None, unsubscribe_url: str
    ) -> None:
        self._template = template
        self._brands = brands
        self._unsubscribe_url = unsubscribe_url
        self._layout = layout
        self._region = Region(template.locale, template.timezone)
        self._formatted = {(use.list, use.name) for use in formatted_uses(template)}
        self._fallback = read_variables(template.fallback).texts
        self._terms: dict[Conditions, Size] = {}
        # List → sizes of one item, by (conditions on customer variables, conditions on fields of the item)
        self._items: dict[str, dict[tuple[Conditions, Conditions], Size]] = {}
        self._part = ""

    def maximum(self) -> Size:
        for part in PARTS:
            if (source := getattr(self._template, part)) is not None:
                self._part = part
                layout_source = getattr(self._layout, part, None) if part in ("html", "text") else None
                if layout_source is not None:
                    if part == "html":
                        layout_source = with_text_direction(layout_source, self._template.locale)
                    layout_pieces = compile_source(layout_source, part == "html").pieces
                    self._add_all(layout_pieces, UNCONDITIONAL, None, UNCONDITIONAL)
                compiled = compile_source(source, part == "html", item_fields_of(self._template))
                self._add_all(compiled.pieces, UNCONDITIONAL, None, UNCONDITIONAL)
        terms: list[_Term | _ListTerm] = [_Term(key, size) for key, size in self._terms.items()]
        for name, sizes in self._items.items():
            terms.append(_ListTerm(sizes, self._template.shapes[name].max, partial(self._possible_states, name)))
        return _max_total(terms, partial(self._possible_states, None))

    def _possible_states(self, list_: str | None, name: str) -> list[str]:
        if list_ is None and self._template.shapes.get(name, VariableType()).list:
            return [LETTERS, FALSE]
        if (list_, name) in self._formatted:
            is_optional = list_ is None and name in self._template.optional and name not in self._fallback
            states = [LETTERS, FALSE] if is_optional else [LETTERS]
        else:
            states = [*_CHARACTER_BY_STATE, FALSE]
        return [*states, FALLBACK] if list_ is None and name in self._fallback else states

    def _add(self, outer: Conditions, list_: str | None, inner: Conditions, size: Size) -> None:
        if list_ is None:
            self._terms[outer] = self._terms.get(outer, ZERO_SIZE) + size
        else:
            sizes = self._items.setdefault(list_, {})
            sizes[outer, inner] = sizes.get((outer, inner), ZERO_SIZE) + size

    def _add_all(self, pieces: Pieces, outer: Conditions, list_: str | None, inner: Conditions) -> None:
        for piece in pieces:
            match piece:
                case EachBlock(name=name):
                    self._add_all(piece.pieces, outer | {(name, None)}, name, UNCONDITIONAL)
                    self._add_all(piece.else_pieces, outer | {(name, FALSE)}, None, UNCONDITIONAL)
                case IfBlock(scope="item", name=name):
                    self._add_all(piece.pieces, outer, list_, inner | {(name, None)})
                    self._add_all(piece.else_pieces, outer, list_, inner | {(name, FALSE)})
                case IfBlock(name=name):
                    self._add_all(piece.pieces, outer | {(name, None)}, list_, inner)
                    self._add_all(piece.else_pieces, outer | {(name, FALSE)}, list_, inner)
                case _:
                    for outer_conditions, item_conditions, size in self._sizes(piece, list_):
                        self._add(outer | outer_conditions, list_, inner | item_conditions, size)

    def _sizes(self, piece: Piece, list_: str | None) -> Iterator[tuple[Conditions, Conditions, Size]]:
        """Yield (conditions on customer variables, conditions on item fields, size) of a piece."""
        match piece:
            case str():
                yield UNCONDITIONAL, UNCONDITIONAL, self._literal_size(piece)
            case UrlAttribute():
                yield from self._address_sizes(piece, list_)
            case Slot(scope="brand" | "customer") if not self._is_caller_slot(piece):
                values = (
                    [brand.get(piece.name, "") for brand in self._brands]
                    if piece.scope == "brand"
                    else [self._unsubscribe_url]
                )
                texts = (
                    escape_value(piece.context, with_path_separator(value) if piece.begins_path and value else value)
                    for value in values
                )
                yield UNCONDITIONAL, UNCONDITIONAL, reduce(Size.__or__, map(self._literal_size, texts), ZERO_SIZE)
            case Slot(scope="customer" | "item"):
                slot_list = list_ if piece.scope == "item" else None
                slash = self._literal_size("/" if piece.begins_path else "")
                for state in self._possible_states(slot_list, piece.name):
                    condition = frozenset({(piece.name, state)})
                    size = self._slot_size(piece, slot_list, state) + slash
                    yield (condition, UNCONDITIONAL, size) if slot_list is None else (UNCONDITIONAL, condition, size)

    def _address_sizes(self, address: UrlAttribute, list_: str | None) -> Iterator[tuple[Conditions, Conditions, Size]]:
        """Yield the sizes of a URL attribute for each combination of states; only the maximum if there are too many."""
        slots = {
            (list_ if piece.scope == "item" else None, piece.name): piece
            for piece in address.pieces
            if isinstance(piece, Slot) and self._is_caller_slot(piece)
        }
        states = [self._possible_states(*piece) for piece in slots]
        if prod(map(len, states)) > ADDRESS_COMBINATIONS_MAX:
            piece_sizes = [
                reduce(Size.__or__, (size for _, _, size in self._sizes(piece, list_))) for piece in address.pieces
            ]
            yield UNCONDITIONAL, UNCONDITIONAL, reduce(Size.__add__, piece_sizes, HASH_SIZE) + Size(len(piece_sizes))
            return
        for combination in product(*states):
            state_by_slot = dict(zip(slots, combination, strict=True))
            outer = frozenset((name, state) for (slot_list, name), state in state_by_slot.items() if slot_list is None)
            inner = frozenset(
                (name, state) for (slot_list, name), state in state_by_slot.items() if slot_list is not None
            )
            yield outer, inner, Size(self._address_octets(address.pieces, list_, state_by_slot)) | HASH_SIZE

    def _address_octets(
        self, pieces: Sequence[str | Slot], list_: str | None, state_by_slot: Mapping[tuple[str | None, str], str]
    ) -> int:
        """Return the octets of a URL whose first value has the shortest scheme; 0 if the URL is rendered as #."""
        total, scheme_saving = (
            len(pieces) // 2,
            None,
        )  # `total` starts with the `/` that may be inserted after each host
        for index, piece in enumerate(pieces):
            slot_list = list_ if isinstance(piece, Slot) and piece.scope == "item" else None
            state = state_by_slot.get((slot_list, piece.name), "") if isinstance(piece, Slot) else ""
            if isinstance(piece, str) or not self._is_caller_slot(piece):
                piece_octets = reduce(Size.__or__, (size for _, _, size in self._sizes(piece, list_))).octets
            else:
                piece_octets = self._slot_size(piece, slot_list, state).octets
            if scheme_saving is None and isinstance(piece, str) and piece.strip(SKIPPED_CHARACTERS):
                return 0
            if scheme_saving is None and isinstance(piece, Slot):
                if state == FALSE or not piece_octets:  # the value is empty, so the next value starts the address
                    continue
                if piece.format and state != FALLBACK:
                    return 0
                scheme_saving = 0
                if self._is_caller_slot(piece) and state != FALLBACK:
                    length = self._template.shapes[slot_list or piece.name].max_length or 0
                    after = pieces[index + 1] if index + 1 < len(pieces) else ""
                    scheme_length = (
                        len("tel") if isinstance(after, str) and ":" in html.unescape(after)[:1] else len("tel:")
                    )
                    if length >= scheme_length:
                        scheme_saving = (piece_octets // length - 1) * scheme_length
                    elif not any(isinstance(later, Slot) for later in pieces[index + 1 :]):
                        return 0
            total += piece_octets
        return total - scheme_saving if scheme_saving is not None else 0

    def _is_caller_slot(self, slot: Slot) -> bool:
        """Return whether the caller gives the value, unlike brand values and the unsubscribe URL."""
        is_unsubscribe_url = slot.scope == "customer" and slot.name == VARIABLE not in self._template.variables
        return slot.scope != "brand" and not is_unsubscribe_url

    def _literal_size(self, text: str) -> Size:
        return size_of(text) if self._part == "body" else Size(octets(text))

    def _slot_size(self, slot: Slot, list_: str | None, state: str) -> Size:
        max_chars = self._template.shapes[list_ or slot.name].max_length or 0
        if slot.context == "refused":
            return ZERO_SIZE
        if state == FALLBACK:
            text = self._fallback[slot.name]
            text = format_value(slot.format, text, self._region) if slot.format and text else text
            return self._literal_size(escape_value(slot.context, text))
        if state == FALSE:
            return self._literal_size("false" if max_chars >= len("false") and not slot.format else "")
        if slot.format:
            if slot.format.kind not in NUMBER_KINDS:  # only whether a date or time fits matters
                max_chars = max(minimum for minimum in (0, DATE_CHARS_MIN, TIME_CHARS_MIN) if minimum <= max_chars)
            max_chars = min(max_chars, FORMATTABLE_CHARS_MAX)
            return format_size(slot.format, self._region, max_chars, slot.context, self._part == "body")
        if (list_, slot.name) in self._formatted:
            max_chars = min(max_chars, FORMATTABLE_CHARS_MAX)
        if slot.context == "host" and state != LETTERS:  # of a value such as `tel:""`, a host keeps only `tel`
            return self._literal_size("tel"[:max_chars] if self._part != "body" else "")
        # A GSM extension character counts twice, as much as any character in UCS-2.
        size = self._literal_size(escape_value(slot.context, _CHARACTER_BY_STATE[state])).times(max_chars)
        return size if state != WIDE else size | Size(0, 2 * max_chars)


class _Term(msgspec.Struct, frozen=True):
    """A size that counts only if all its conditions on variables hold."""

    conditions: Conditions
    size: Size

    def size_in(self, states: Mapping[str, str]) -> Size:
        return self.size if _conditions_hold(self.conditions, states) else ZERO_SIZE


class _ListTerm:
    """The maximum size of a rendered list: its maximum number of items, each of the maximum size.

    Which pieces of an item count depends on the states of customer variables (`outer`).
    """

    def __init__(self, sizes: Mapping[tuple[Conditions, Conditions], Size], count: int, states_of: StatesOf) -> None:
        self.conditions: Conditions = frozenset(condition for outer, _ in sizes for condition in outer)
        self._sizes = sizes
        self._count = count
        self._states_of = states_of
        self._size_by_outer: dict[frozenset[Conditions], Size] = {}

    def size_in(self, states: Mapping[str, str]) -> Size:
        return self._max_size(frozenset(outer for outer, _ in self._sizes if _conditions_hold(outer, states)))

    def split(self) -> "list[_Term]":
        """Return one term per condition on customer variables. The sum of their maxima is never too low."""
        return [_Term(outer, self._max_size(frozenset({outer}))) for outer in {outer for outer, _ in self._sizes}]

    def _max_size(self, outer: frozenset[Conditions]) -> Size:
        if (size_sum := self._size_by_outer.get(outer)) is None:
            sizes: dict[Conditions, Size] = {}
            for (item_outer, inner), size in self._sizes.items():
                if item_outer in outer:
                    sizes[inner] = sizes.get(inner, ZERO_SIZE) + size
            terms = [_Term(key, size) for key, size in sizes.items()]
            size_sum = self._size_by_outer[outer] = _max_total(terms, self._states_of).times(self._count)
        return size_sum


def _max_total(terms: "Sequence[_Term | _ListTerm]", states_of: StatesOf) -> Size:
    """Return the maximum sum of the terms over all combinations of their variables' states."""
    total = reduce(Size.__add__, (term.size_in({}) for term in terms if not term.conditions), ZERO_SIZE)
    for group in _group_terms([term for term in terms if term.conditions], states_of):
        states_by_variable = _relevant_states(group, states_of)
        sums = (
            reduce(Size.__add__, (term.size_in(combination) for term in group))
            for combination in (
                dict(zip(states_by_variable, states, strict=True)) for states in product(*states_by_variable.values())
            )
        )
        total += reduce(Size.__or__, sums)
    return total


def _relevant_states(group: "Sequence[_Term | _ListTerm]", states_of: StatesOf) -> dict[str, list[str]]:
    """Return the states of the terms' variables that affect the size."""
    needed = {condition for term in group for condition in term.conditions}
    return {
        name: [state for state in states_of(name) if state in (LETTERS, FALSE) or (name, state) in needed]
        for name in sorted({name for name, _ in needed})
    }


def _conditions_hold(conditions: Conditions, states: Mapping[str, str]) -> bool:
    return all(states[name] != FALSE if state is None else states[name] == state for name, state in conditions)


def _group_terms(terms: "Sequence[_Term | _ListTerm]", states_of: StatesOf) -> "Iterator[Sequence[_Term | _ListTerm]]":
    """Yield groups of terms that share variables.

    A group that is too large is split: first its lists, then by terms with equal variables.
    """
    for group in _connected_terms(terms):
        if prod(map(len, _relevant_states(group, states_of).values())) <= COMBINATIONS_MAX:
            yield group
        elif any(isinstance(term, _ListTerm) for term in group):
            split_terms = [part for term in group for part in (term.split() if isinstance(term, _ListTerm) else [term])]
            yield [part for part in split_terms if not part.conditions]
            yield from _group_terms([part for part in split_terms if part.conditions], states_of)
        else:
            terms_by_variable_set: dict[frozenset[str], list[_Term | _ListTerm]] = {}
            for term in group:
                terms_by_variable_set.setdefault(frozenset(name for name, _ in term.conditions), []).append(term)
            yield from terms_by_variable_set.values()


def _connected_terms(terms: "Sequence[_Term | _ListTerm]") -> "Iterable[list[_Term | _ListTerm]]":
    parent: dict[str, str] = {}

    def find_root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for term in terms:
        first, *others = sorted({name for name, _ in term.conditions})
        for other in others:
            parent[find_root(other)] = find_root(first)
    terms_by_root: dict[str, list[_Term | _ListTerm]] = {}
    for term in terms:
        terms_by_root.setdefault(find_root(next(iter(term.conditions))[0]), []).append(term)
    return terms_by_root.values()


@lru_cache(maxsize=1024)
def format_size(
    value_format: ValueFormat, region: Region, max_chars: int, context: EscapeContext, is_body: bool
) -> Size:
    """Return the maximum size of any formattable value of at most `max_chars` characters."""

    def size(text: str) -> Size:
        text = escape_value(context, replace_no_break_spaces(text) if is_body else text)
        return size_of(text) if is_body else Size(octets(text))

    def max_size(texts: Iterable[str]) -> Size:
        return reduce(Size.__or__, map(size, texts), IMPOSSIBLE_SIZE)

    if value_format.kind in NUMBER_KINDS:
        return max_size(format_value(value_format, number, region) for number in _sample_numbers(max_chars))
    if max_chars < (DATE_CHARS_MIN if value_format.kind == "date" else TIME_CHARS_MIN):
        return ZERO_SIZE
    locale = cldr_locale(region.locale)
    width: FormatWidth = value_format.argument  # type: ignore[assignment]
    days = {
        month: max_size(format_date(date(2026, month, day), width, locale=locale) for day in range(20, 27))
        for month in MONTHS
    }
    if value_format.kind == "date":
        return reduce(Size.__or__, days.values())
    zone = ZoneInfo(region.timezone)
    times = {
        month: max_size(format_time(at, width, tzinfo=zone, locale=locale) for at in _sample_times(zone, month))
        for month in MONTHS
    }
    if value_format.kind == "time":
        return reduce(Size.__or__, times.values())
    separator = str(get_datetime_format(width, locale=locale)).replace("'", "").replace("{0}", "").replace("{1}", "")
    separator_size = size(f"0{separator}0")  # measured between digits, because an address strips spaces at its ends
    return reduce(Size.__or__, (days[month] + times[month] for month in MONTHS)) + separator_size + Size(-2, -2, -2)


def _sample_numbers(max_chars: int) -> Iterator[str]:
    """Yield a number for each sign and digit count that fits in `max_chars` characters, with an exponent if shorter."""
    for sign, digits, decimals in product(("", "-"), range(1, 16), range(5)):
        plain_chars = digits + (decimals + 1 if decimals else 0)
        exponent_chars = 2 + len(str(digits - 1)) if not decimals else 4 if digits == 1 else plain_chars
        if len(sign) + min(plain_chars, exponent_chars) <= max_chars:
            for decimal in "19" if decimals else "1":  # rounding up may add a digit
                yield f"{sign}{'9' * digits}{'.' + decimal * decimals if decimals else ''}"


def _sample_times(zone: ZoneInfo, month: int) -> Iterator[datetime]:
    """Yield every hour of a day in this month for every UTC offset that the zone has had since 1840."""
    time_by_offset: dict[tuple[object, ...], datetime] = {}
    for year in range(1840, 2041):
        mid_month = datetime(year, month, 15, tzinfo=UTC)
        local = mid_month.astimezone(zone)
        time_by_offset.setdefault((local.utcoffset(), local.dst(), local.tzname()), mid_month)
    for mid_month in time_by_offset.values():
        yield from (mid_month.replace(hour=hour, minute=58, second=58) for hour in range(24))
