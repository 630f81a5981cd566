"""Templates: reading a caller's variables, checking a template, and rendering it (contract 5).

A source is cut once into literals and slots; rendering only joins them, so a value is never scanned again.
In HTML each slot knows its place: text and quoted attributes escape the value, an address (`href`, `src`,
…) encodes it and must come out as http(s), mailto or tel, and every other place is refused.
"""

import html
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import islice
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from heliograph.rules.limits import BODY_OCTETS_MAX, KIB, SUBJECT_OCTETS_MAX, VARIABLES_OCTETS_MAX
from heliograph.rules.placeholders import NAME, NAME_MAX, PLACEHOLDER, cure, known_of, strays
from heliograph.rules.refusals import (
    BodyTooLong,
    InvalidRequest,
    InvalidSubject,
    MissingVariable,
    TemplateNotFound,
    UnknownVariable,
    WrongTemplateChannel,
)
from heliograph.rules.setup.records import Channel, Team, Template
from heliograph.rules.text import quoted

BRAND_NAME = "brand.name"  # among a WhatsApp template's variables: which position the service fills itself
VARIABLES_MAX = 100
EXAMPLE_MAX = 4096  # characters of an example value
PROBLEMS_MAX = 20  # of a kind in one part that are told
READ_MAX = 10_000  # variables of a caller that are looked at: no template declares so many
# Characters as written, placeholders too; how long a text may become is checked when it is sent.
LENGTHS = {"subject": 1000, "html": 512 * KIB, "text": 512 * KIB, "body": 4096}
PARTS = tuple(LENGTHS)

_COUNTRY = re.compile(r"[A-Z]{2}")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # Unicode categories Cc, Zl and Zp


# -- variables ---------------------------------------------------------------------------------------------


def read_variables(given: dict[str, Any] | None) -> dict[str, str]:
    """A caller's variables by their name without `customer.`; null counts as missing.

    `brand.*` keeps its name, which no template declares, and so becomes an unknown variable.
    """
    values: dict[str, str] = {}
    if not given:
        return values
    for path, value in islice(_leaves(given, ""), READ_MAX):
        name = path.removeprefix("customer.")
        text = _text_of(value, name)
        if values.setdefault(name, text) != text:
            raise InvalidRequest(
                f"The variable {name!r} is given twice with different values. Send it once.",
                param=f"variables.{name}",
            )
    return values


def only_declared(template: Template | None, given: dict[str, Any] | None) -> dict[str, Any] | None:
    """What the template asks for, of values that another service's caller gives: there, others are ignored."""
    if template is None or not given:
        return given
    names = set(asked_names(template))
    found = ((path.removeprefix("customer."), value) for path, value in _leaves(given, ""))
    return {name: value for name, value in islice(found, READ_MAX) if name in names}


def check_size_of_variables(given: dict[str, Any] | None) -> None:
    if given:
        size = len(msgspec.json.encode(given))
        check_size(size, "variables have, as JSON,", param="variables", most=VARIABLES_OCTETS_MAX)


def _leaves(group: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in group.items():
        if isinstance(value, dict):
            inner = f"{prefix}{key}."
            # No template declares so long a name: what is inside shares this one, else each would repeat it.
            yield from _leaves(value, inner) if len(inner) <= 2 * NAME_MAX else [(f"{inner[:NAME_MAX]}…", "")]
        elif value is not None:
            name = prefix + key
            yield (name, value) if len(name) <= 2 * NAME_MAX else (f"{name[:NAME_MAX]}…", "")


def _text_of(value: Any, name: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    raise InvalidRequest(
        f"The variable {name!r} is a list. Send a string, a number or a boolean.",
        param=f"variables.{name}",
    )


def asked_names(template: Template) -> list[str]:
    """The declared variables that a caller gives; the brand's name is the service's own."""
    return [name for name in template.variables if name != BRAND_NAME]


def with_brand(template: Template, values: Mapping[str, str], brand: Mapping[str, str]) -> dict[str, str]:
    """A value for each declared variable, the brand's name where it has a position (contract 5)."""
    return {**values, **({BRAND_NAME: brand["name"]} if BRAND_NAME in template.variables else {})}


def missing_and_unknown(template: Template, values: Mapping[str, str]) -> tuple[list[str], list[str]]:
    declared = dict.fromkeys(asked_names(template))
    missing = [name for name in declared if name not in values and name not in template.optional]
    return missing, [name for name in values if name not in declared]


def check_variables(template: Template, values: dict[str, str]) -> None:
    missing, unknown = missing_and_unknown(template, values)
    if missing:
        raise MissingVariable(
            f"The template {template.id} needs these variables: {', '.join(missing)}.",
            param="variables",
            details={"variables": missing},
        )
    if unknown:
        raise UnknownVariable(
            f"The template {template.id} does not declare these variables: {', '.join(unknown)}.",
            param="variables",
            details={"variables": unknown},
        )


# -- rendering ---------------------------------------------------------------------------------------------


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    subject: str | None
    html: str | None
    text: str | None
    body: str | None


# plain: not HTML. text: HTML text or a quoted attribute. address, query: inside an address, before and after
# its `?`. refused: anywhere else in HTML.
Place = Literal["plain", "text", "address", "query", "refused"]


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
                return html.escape(quote(value.strip(_BLANK), safe=_ADDRESS_SAFE, errors="replace"))
            case "query":
                return html.escape(quote(value, safe=_QUERY_SAFE, errors="replace"))
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


def render(template: Template, values: dict[str, str], brand: dict[str, str]) -> Rendered:
    """Values that are absent render empty; whether that is allowed is decided by `check_variables`.

    Nothing is joined before its length is known: a value can stand in a template thousands of times.
    """
    fill = cache(lambda slot: _measured(slot.fill(values, brand)))
    parts = {
        part: [_filled(piece, fill) for piece in _compile(source, part == "html").pieces]
        for part in PARTS
        if (source := getattr(template, part)) is not None
    }
    sizes = {part: sum(size for _, size in pieces) for part, pieces in parts.items()}
    check_size(sizes.get("html", 0) + sizes.get("text", 0), "rendered html and text have", param="variables")
    check_size(sizes.get("body", 0), "rendered body has", param="variables")
    check_size(sizes.get("subject", 0), "rendered subject has", param="variables", most=SUBJECT_OCTETS_MAX)
    joined = {part: "".join([_one(text) for text, _ in pieces]) for part, pieces in parts.items()}
    return Rendered(**dict.fromkeys(PARTS) | joined)


def octets(text: str | None) -> int:
    """In UTF-8."""
    return 0 if text is None else len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def check_size(size: int, what: str, *, param: str, most: int = BODY_OCTETS_MAX) -> None:
    if size > most:
        raise BodyTooLong(f"The {what} {size} bytes, {most} is the most. {BodyTooLong.fix}", param=param)


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
    return address if _SAFE_ADDRESS.match(address) else "#"


def check_subject(subject: str) -> None:
    if _CONTROL.search(subject):
        raise InvalidSubject(param="subject")


# -- reading HTML ------------------------------------------------------------------------------------------

_BLANK = "".join(map(chr, range(0x21)))  # what browsers skip before an address
_SAFE_ADDRESS = re.compile(r"[\x00-\x20]*(?:https?|mailto|tel):", re.IGNORECASE)
_ADDRESS_SAFE = "/:?#[]@!$&()*+,;=%~"
_QUERY_SAFE = "/:@?!$()*,=~"  # not & + # % ;: they would end the value or change it

_ADDRESS_ATTRIBUTES = frozenset(
    "href src action formaction poster background xlink:href cite data longdesc lowsrc dynsrc manifest "
    "icon ping profile codebase classid archive usemap".split()
)
# Values here would be read as CSS, as HTML, or as a list of addresses.
_REFUSED_ATTRIBUTES = frozenset({"style", "srcdoc", "srcset", "imagesrcset"})
_REFUSED_TAGS = frozenset({"meta", "animate", "set"})  # their attributes can hold addresses for others
_RAW_TAGS = frozenset({"script", "style", "iframe", "noscript", "noembed", "noframes", "xmp", "plaintext"})
_TEXT_TAGS = frozenset({"title", "textarea"})
_WHOLE_TAGS = _RAW_TAGS | _TEXT_TAGS  # nothing inside them is a tag

_MASK = "\ufdd0"  # stands for each character of a placeholder while the tags are found
_WS = r"[\t\n\f\r ]"
_COMMENT = re.compile(r"<!--(?:-?>|.*?(?:--!?>|\Z))|<(?:[!?]|/(?![a-zA-Z]))[^>]*>?", re.DOTALL)
_OPEN = re.compile(rf"<[!?/a-zA-Z{_MASK}]")
_TAG = re.compile(rf"</?([a-zA-Z{_MASK}][^\t\n\f\r />]*)")
_ATTRIBUTE = re.compile(
    rf"""(?:{_WS}|/)*([^\t\n\f\r />][^\t\n\f\r />=]*)(?:{_WS}*={_WS}*("[^"]*"?|'[^']*'?|[^\t\n\f\r >]*))?"""
)
_TAG_END = re.compile(rf"(?:{_WS}|/)*(?:>|\Z)")


class _Span(msgspec.Struct, frozen=True):
    """A stretch of HTML in which a placeholder is more than text."""

    start: int
    end: int
    place: Literal["address", "refused"]
    what: str


def _spans(source: str) -> Iterator[_Span]:
    """The addresses and the refused places of a masked source, in order, up to the last placeholder."""
    last = source.rfind(_MASK) + 1
    found = _OPEN.search(source, 0, last)
    while found:
        at = found.start()
        if comment := _COMMENT.match(source, at):
            yield _Span(at, comment.end(), "refused", "a comment")
            at = comment.end()
        else:
            tag = _TAG.match(source, at)
            assert tag  # what opens and is no comment is a tag
            name = tag[1].lower()
            if _MASK in name:
                yield _Span(at, tag.end(), "refused", "a tag name")
            at = tag.end()
            while not (end := _TAG_END.match(source, at)):
                attribute = _ATTRIBUTE.match(source, at)
                assert attribute  # what does not end the tag is an attribute
                if _MASK in attribute[0]:
                    yield from _attribute_spans(name, attribute)
                at = attribute.end()
            at = end.end()
            if name in _WHOLE_TAGS and source[tag.start() + 1] != "/":
                close = re.compile(rf"</{name}(?=[\t\n\f\r />])|\Z", re.IGNORECASE).search(source, at)
                assert close
                if name in _RAW_TAGS or "<" in source[at : close.start()]:
                    yield _Span(at, close.start(), "refused", f"<{name}>")
                at = close.start()
        found = _OPEN.search(source, at, last)


def _attribute_spans(tag: str, attribute: re.Match[str]) -> Iterator[_Span]:
    name = attribute[1].lower()
    yield _Span(*attribute.span(1), "refused", "an attribute name")
    if attribute[2]:
        start, end = attribute.span(2)
        if attribute[2][0] not in "\"'":
            yield _Span(start, end, "refused", f"the unquoted attribute {name}")
        elif name.startswith("on") or name in _REFUSED_ATTRIBUTES or tag in _REFUSED_TAGS:
            yield _Span(start, end, "refused", f"the attribute {name} of <{tag}>")
        elif name in _ADDRESS_ATTRIBUTES:
            closed = len(attribute[2]) > 1 and attribute[2][-1] == attribute[2][0]
            yield _Span(start + 1, end - closed, "address", f"the attribute {name} of <{tag}>")


# -- cutting a source into pieces --------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _compile(source: str, markup: bool) -> Compiled:
    found = list(PLACEHOLDER.finditer(source))
    masked = PLACEHOLDER.sub(lambda slot: _MASK * len(slot[0]), source)
    problems: list[str] = []
    pieces: list[str | Slot | UrlAttribute] = []
    if not markup:
        pieces += _cut(source, 0, len(source), "plain")
    else:
        at = 0
        for span in _spans(masked):
            if _MASK not in masked[span.start : span.end]:
                continue
            pieces += _cut(source, at, span.start, "text")
            at = span.end
            if span.place == "refused":
                problems.append(f"a placeholder cannot stand in {span.what}")
                pieces += _cut(source, span.start, span.end, "refused")
            else:
                address = _cut_address(source, span)
                if address is None:
                    problems.append(f"{span.what} must begin with https:, http:, mailto:, tel: or with a placeholder")
                pieces += address or ["#"]
        pieces += _cut(source, at, len(source), "text")
    return Compiled(
        pieces=tuple(pieces),
        names=tuple(slot[2] for slot in found if slot[1] == "customer"),
        problems=tuple(problems),
        strays=tuple(islice(strays(source, masked), PROBLEMS_MAX)),
    )


def _cut(source: str, start: int, end: int, place: Place) -> list[str | Slot]:
    pieces: list[str | Slot] = []
    for slot in PLACEHOLDER.finditer(source, start, end):
        pieces += [source[start : slot.start()], Slot(slot[1] == "brand", slot[2], place)]
        start = slot.end()
    pieces.append(source[start:end])
    return [piece for piece in pieces if piece]


def _cut_address(source: str, span: _Span) -> "list[str | Slot | UrlAttribute] | None":
    """The pieces of an address, or None when its beginning can never be safe."""
    pieces: list[str | Slot] = []
    before = ""
    for piece in _cut(source, span.start, span.end, "address"):
        if isinstance(piece, str):
            before += html.unescape(piece)
        elif "?" in before:
            piece = Slot(piece.brand, piece.name, "query")
        pieces.append(piece)
    first = html.unescape(pieces[0]) if isinstance(pieces[0], str) else ""
    if _SAFE_ADDRESS.match(first):
        return [*pieces]
    return None if first.strip(_BLANK) else [UrlAttribute(tuple(pieces))]


# -- the template itself -----------------------------------------------------------------------------------


def find_template(team: Team, template_id: str, channel: Channel) -> Template:
    template = team.templates.get(template_id)
    if template is None or template.status != "approved":
        raise TemplateNotFound(
            f"The team has no approved template {quoted(template_id)}. {TemplateNotFound.fix}", param="template_id"
        )
    if template.channel != channel:
        raise WrongTemplateChannel(
            f"The template {template_id} is for {template.channel}, not for {channel}. {WrongTemplateChannel.fix}",
            param="template_id",
        )
    return template


def placeholder_names(template: Template) -> list[str]:
    """The variables that its texts name, in their order; for WhatsApp the brand's name has a position too."""
    parts = (template.subject, template.html, template.text, template.body)
    slots = [(slot[1], slot[2]) for part in parts if part for slot in PLACEHOLDER.finditer(part)]
    has_positions = template.channel == "whatsapp"
    names = [f"{group}.{name}".removeprefix("customer.") for group, name in slots]
    return list(dict.fromkeys(n for n in names if not n.startswith("brand.") or (has_positions and n == BRAND_NAME)))


def check_template(template: Template) -> list[str]:
    """What is wrong with a template, in words; empty when it can be used."""
    # What is too long is looked at no further.
    return list(_size_problems(template)) or [
        *_part_problems(template),
        *_variable_problems(template),
        *_price_problems(template),
    ]


def _size_problems(template: Template) -> Iterator[str]:
    for part, most in LENGTHS.items():
        if len(getattr(template, part) or "") > most:
            yield f"{part}: it has {len(getattr(template, part)):,} characters, {most:,} is the most"
    if len(template.variables) > VARIABLES_MAX:
        yield f"variables: there are {len(template.variables)}, {VARIABLES_MAX} is the most"
    if any(len(name) > NAME_MAX for name in template.variables):
        yield f"variables: a name has at most {NAME_MAX} characters"
    if len(template.examples) > VARIABLES_MAX:
        yield f"examples: there are {len(template.examples)}, {VARIABLES_MAX} is the most"
    for name, value in template.examples.items():
        if max(len(name) - NAME_MAX, len(value) - EXAMPLE_MAX) > 0:
            yield f"examples: a value has at most {EXAMPLE_MAX:,} characters, its name {NAME_MAX}"
            break


def _part_problems(template: Template) -> Iterator[str]:
    if template.channel == "email":
        if not template.subject:
            yield "subject: an email template needs one"
        elif _CONTROL.search(template.subject):
            yield "subject: it must be one line without control characters"
        if not (template.html or template.text):
            yield "html, text: an email template needs at least one of them"
    elif not template.body:
        yield f"body: a template for {'SMS' if template.channel == 'sms' else 'WhatsApp'} needs one"
    if template.channel == "whatsapp" and template.category is None:
        yield "category: a WhatsApp template needs AUTHENTICATION, UTILITY or MARKETING"
    sources = {part: source for part in PARTS if (source := getattr(template, part)) is not None}
    known = known_of(sources.values(), template.variables)
    for part, source in sources.items():
        compiled = _compile(source, part == "html")
        yield from (f"{part}: {quoted(stray)} is not a placeholder: {cure(stray, known)}" for stray in compiled.strays)
        yield from (f"{part}: {problem}" for problem in compiled.problems)
        undeclared = sorted(set(compiled.names) - set(asked_names(template)))
        yield from (f"{part}: {{{{customer.{name}}}}} is not in variables" for name in undeclared)


def _variable_problems(template: Template) -> Iterator[str]:
    for name in dict.fromkeys(template.variables):
        if template.variables.count(name) > 1:
            yield f"variables: {name!r} is there twice"
        if not NAME.fullmatch(name):
            yield f"variables: {name!r} is not a name of a-z, 0-9 and _ that begins with a letter"
        if name == BRAND_NAME and template.channel == "whatsapp":
            continue
        if name.startswith(("customer.", "brand.")):
            yield f"variables: write {name!r} without its first part"
    for name in template.optional:
        if name not in template.variables:
            yield f"optional: {name!r} is not in variables"
        elif name == BRAND_NAME:
            yield f"optional: {name!r} is always there"


def _price_problems(template: Template) -> Iterator[str]:
    if template.price < 0:
        yield "price: it cannot be negative"
    for country, price in template.prices.items():
        if price < 0:
            yield f"prices.{country}: it cannot be negative"
        if not _COUNTRY.fullmatch(country):
            yield f"prices.{country}: write the country as an ISO code such as GB"
