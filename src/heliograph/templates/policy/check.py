"""Template lookup for a send, and validation of templates and layouts."""

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from operator import itemgetter
from typing import Literal

import msgspec

from heliograph.domain.limits import HTML_MAX
from heliograph.domain.refusals import TemplateNotFound, WrongTemplateChannel
from heliograph.domain.setup.records import Channel, Layout, LocaleParts, Shape, Team, Template
from heliograph.domain.text import quoted
from heliograph.templates.policy.formats import is_timezone
from heliograph.templates.policy.locales import in_locale, written
from heliograph.templates.policy.placeholders import BRAND, NAME, NAME_MAX, TOKEN, cure, known_of
from heliograph.templates.policy.render import CONTROL
from heliograph.templates.policy.source import PARTS, Compiled, Each, If, Pieces, Slot, Usage, compiled
from heliograph.templates.policy.values import BRAND_NAME, asked_names

VARIABLES_MAX = 100
EXAMPLE_MAX = 4096  # characters of an example value
LIST_MAX = 200  # maximum items of a list variable
LENGTH_MAX = 100_000  # maximum `max_length` of a variable
LOCALES_MAX = 50
PIECES_MAX = 100_000  # pieces of a part, with lists at their maximum length
# Maximum characters of each source, including placeholders; the rendered length is checked when sending.
LENGTHS = {"subject": 1000, "html": HTML_MAX, "text": HTML_MAX, "body": 4096}

_COUNTRY = re.compile(r"[A-Z]{2}")
_FOREIGN = re.compile(r"\{%|\{\{\{")
_INSTEAD = {
    "{%": "write {{#if customer.name}} or {{#each customer.items}}",
    "{{{": "write two braces, as in {{customer.name}}",
}
UNDECLARED_MAX = 200  # maximum undeclared variables reported per part
STRAYS_MAX = 1000  # maximum occurrences of foreign template syntax that are examined

Level = Literal["error", "warning"]


class TemplateProblem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a template, where, and in words."""

    level: Level = "error"
    code: str
    part: str  # field of the template
    locale: str | None = None  # locale of a translated part
    line: int | None = None  # line in the part's text, from 1
    text: str

    @property
    def field(self) -> str:
        """Return the field's path in a setup file."""
        return f"locales.{self.locale}.{self.part}".removesuffix(".locales") if self.locale else self.part

    def __str__(self) -> str:
        return f"{self.field}, line {self.line}: {self.text}" if self.line else f"{self.field}: {self.text}"


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
    """Return the variables used in the template, in order; for WhatsApp, including the position of the brand name."""
    cut = [compiled(source, part == "html") for part, source in sources_of(template).items()]
    names = [use.name for one in cut for use in one.uses if use.list is None]
    if template.channel == "whatsapp" and template.body:
        return list(dict.fromkeys(_positions(compiled(template.body, False).pieces)))
    return list(dict.fromkeys(names))


def _positions(pieces: Pieces) -> Iterator[str]:
    for piece in pieces:
        if isinstance(piece, Slot):
            name = f"{piece.scope}.{piece.name}".removeprefix("customer.")
            if piece.scope == "customer" or name == BRAND_NAME:
                yield name


def sources_of(template: Template | Layout | LocaleParts) -> dict[str, str]:
    return {part: source for part in PARTS if (source := getattr(template, part, None)) is not None}


def length_of(template: Template | Layout) -> int:
    """Return the number of characters of all parts in all languages."""
    others = template.locales.values() if isinstance(template, Template) else ()
    return sum(len(source) for one in (template, *others) for source in sources_of(one).values())


def check_template(template: Template) -> list[TemplateProblem]:
    """Return the template's errors; empty if it is valid."""
    # Templates that are too long are not examined further.
    return list(_size_problems(template)) or [
        *_part_problems(template),
        *_variable_problems(template),
        *_price_problems(template),
        *_locale_problems(template),
    ]


def _size_problems(template: Template) -> Iterator[TemplateProblem]:
    for part, most in LENGTHS.items():
        for locale, texts in [(None, template), *template.locales.items()]:
            size = len(getattr(texts, part) or "")
            if size > most:
                told = f"it has {size:,} characters, {most:,} is the most"
                yield TemplateProblem(code="too_long", part=part, locale=locale, text=told)
    for field, given in (("variables", template.variables), ("examples", template.examples)):
        if len(given) > VARIABLES_MAX:
            yield TemplateProblem(
                code="too_many", part=field, text=f"there are {len(given)}, {VARIABLES_MAX} is the most"
            )
    if len(template.locales) > LOCALES_MAX:
        told = f"there are {len(template.locales)}, {LOCALES_MAX} is the most"
        yield TemplateProblem(code="too_many", part="locales", text=told)
    if any(len(name) > NAME_MAX for name in template.variables):
        yield TemplateProblem(code="invalid_name", part="variables", text=f"a name has at most {NAME_MAX} characters")
    if any(len(name) > NAME_MAX or len(value) > EXAMPLE_MAX for name, value in template.examples.items()):
        told = f"a value has at most {EXAMPLE_MAX:,} characters, its name {NAME_MAX}"
        yield TemplateProblem(code="too_long", part="examples", text=told)


def _part_problems(template: Template) -> Iterator[TemplateProblem]:
    if template.channel == "email":
        if not template.subject:
            yield TemplateProblem(code="missing_part", part="subject", text="an email template needs one")
        elif CONTROL.search(template.subject):
            told = "it must be one line without control characters"
            yield TemplateProblem(code="invalid_subject", part="subject", text=told)
        if not (template.html or template.text):
            yield TemplateProblem(
                code="missing_part", part="html, text", text="an email template needs at least one of them"
            )
    elif not template.body:
        told = f"a template for {'SMS' if template.channel == 'sms' else 'WhatsApp'} needs one"
        yield TemplateProblem(code="missing_part", part="body", text=told)
    if template.channel == "whatsapp" and template.category is None:
        told = "a WhatsApp template needs AUTHENTICATION, UTILITY or MARKETING"
        yield TemplateProblem(code="missing_part", part="category", text=told)
    if template.layout and template.channel != "email":
        yield TemplateProblem(code="misplaced_layout", part="layout", text="only an email template has one")
    yield from _source_problems(template, None)


def _source_problems(template: Template, locale: str | None) -> Iterator[TemplateProblem]:
    """Yield the problems of a template's parts in one language."""
    sources = sources_of(template)
    known = known_of(sources.values(), template.variables)
    for part, source in sources.items():
        cut = compiled(source, part == "html")

        def problem(code: str, at: int | None, text: str) -> TemplateProblem:
            line = None if at is None else source.count("\n", 0, at) + 1  # noqa: B023
            return TemplateProblem(code=code, part=part, locale=locale, line=line, text=text)  # noqa: B023

        foreign = {found[0]: found.start() for found in reversed(list(islice(_FOREIGN.finditer(source), STRAYS_MAX)))}
        for syntax, at in foreign.items():
            yield problem("foreign_syntax", at, f"{syntax} is of another template language: {_INSTEAD[syntax]}")
        for at, stray in cut.strays:
            if not stray.startswith("{{{"):
                yield problem("not_a_placeholder", at, f"{quoted(stray)} is not a placeholder: {cure(stray, known)}")
        yield from (problem(fault.code, fault.at, fault.text) for fault in cut.faults)
        if undeclared := list(islice(_undeclared(template, cut.uses), UNDECLARED_MAX)):
            places = _first_places(source)
            yield from (problem("unknown_variable", places.get((use.list, use.name)), told) for use, told in undeclared)
        for name, at in first_slots(source, "customer").items():
            if template.shapes.get(name, Shape()).list:
                told = f"{name} is a list: write {{{{#each customer.{name}}}}} … {{{{/each}}}} with its fields, as in"
                yield problem("unknown_variable", at, f"{told} {{{{item.{template.shapes[name].list[0]}}}}}")
        if cut.contents:
            at = next(token.start() for token in TOKEN.finditer(source) if token[10])
            yield problem("misplaced_placeholder", at, "{{content}} stands in layouts only")
        if wrong := cut.blocks & _refused_blocks(template.channel, part):
            first = next(token for token in TOKEN.finditer(source) if wrong & {token[5], token[9]})
            told = f"{{{{#{first[5] or first[9]}}}}} cannot stand in {_where(template.channel, part)}"
            yield problem("misplaced_block", first.start(), told)
        if _weight(cut.pieces, template.shapes) > PIECES_MAX:
            yield problem("too_long", None, "its lists with all their items become too much: lower a max")


def _refused_blocks(channel: Channel, part: str) -> set[str]:
    return {"each", "if"} if channel == "whatsapp" else {"each"} if part == "subject" else set()


def _where(channel: Channel, part: str) -> str:
    return "a WhatsApp template" if channel == "whatsapp" else f"the {part}"


def _undeclared(template: Template, uses: tuple[Usage, ...]) -> Iterator[tuple[Usage, str]]:
    declared = set(asked_names(template))
    for use in dict.fromkeys(msgspec.structs.replace(use, format=None) for use in uses):
        fields = template.shapes.get(use.list or use.name, Shape()).list
        if use.list == "":
            yield use, f"{{{{item.{use.name}}}}} stands only inside {{{{#each …}}}}"
        elif use.list is not None and use.name not in fields and use.list in template.shapes:
            yield use, f"{{{{item.{use.name}}}}} is not a field of {use.list} in variables"
        elif use.list is None and use.name not in declared:
            yield use, f"{{{{customer.{use.name}}}}} is not in variables"
        elif use.list is None and use.is_list and not fields:
            yield use, f'{use.name} is no list: declare it as {{ name = "{use.name}", list = ["…"] }}'


def _first_places(source: str) -> dict[tuple[str | None, str], int]:
    """Map (list, name) of each variable to its first offset. List: None for a customer variable, "" for any list."""
    places: dict[tuple[str | None, str], int] = {}
    among = ""
    for token in TOKEN.finditer(source):
        if token[5] == "each":
            among = token[7]
        if "item" in (token[1], token[6]):
            places.setdefault((among, token[2] or token[7]), token.start())
            places.setdefault(("", token[2] or token[7]), token.start())
        elif "customer" in (token[1], token[6]):
            places.setdefault((None, token[2] or token[7]), token.start())
        if token[9] == "each":
            among = ""
    return places


def first_slots(source: str, scope: str) -> dict[str, int]:
    """Map each variable name of `scope` to the offset of its first value placeholder.

    Variables in `#if` and `#each` do not count.
    """
    return {token[2]: token.start() for token in reversed(list(TOKEN.finditer(source))) if token[1] == scope}


def unknown_brand_variables(source: str) -> Iterator[tuple[str, int, str]]:
    """Yield (code, offset, message) for each `brand.*` placeholder that does not exist."""
    for name, at in sorted(first_slots(source, "brand").items(), key=itemgetter(1)):
        if name not in BRAND:
            known = " and ".join(f"{{{{brand.{one}}}}}" for one in BRAND)
            yield "unknown_variable", at, f"{{{{brand.{name}}}}} is always empty: a brand has {known}"


def _weight(pieces: Pieces, shapes: dict[str, Shape]) -> int:
    """Return the maximum number of pieces after expanding lists."""
    total = len(pieces)
    for piece in pieces:
        if isinstance(piece, Each | If):
            times = shapes.get(piece.name, Shape()).max if isinstance(piece, Each) else 1
            total += max(times * _weight(piece.pieces, shapes), _weight(piece.otherwise, shapes))
    return total


def _variable_problems(template: Template) -> Iterator[TemplateProblem]:
    def problem(code: str, told: str, part: str = "variables") -> TemplateProblem:
        return TemplateProblem(code=code, part=part, text=told)

    for name in dict.fromkeys(template.variables):
        if template.variables.count(name) > 1:
            yield problem("duplicate_variable", f"{name!r} is there twice")
        if not NAME.fullmatch(name):
            yield problem("invalid_name", f"{name!r} is not a name of a-z, 0-9 and _ that begins with a letter")
        if name == BRAND_NAME and template.channel == "whatsapp":
            continue
        if name.startswith(("customer.", "brand.")):
            yield problem("invalid_name", f"write {name!r} without its first part")
    for name, shape in template.shapes.items():
        yield from (problem(code, f"{name!r} {told}") for code, told in _shape_problems(shape, template.channel))
    for name in template.optional:
        if name not in template.variables:
            yield problem("unknown_variable", f"{name!r} is not in variables", "optional")
        elif name == BRAND_NAME:
            yield problem("invalid_name", f"{name!r} is always there", "optional")
    if not is_timezone(template.timezone):
        told = f"{quoted(template.timezone)} is no time zone: write a name such as Europe/Vienna"
        yield problem("invalid_timezone", told, "timezone")


def _shape_problems(shape: Shape, channel: Channel) -> Iterator[tuple[str, str]]:
    if shape.list and channel == "whatsapp":
        yield "misplaced_block", "is a list: a WhatsApp template takes none"
    if bad := next((field for field in shape.list if not NAME.fullmatch(field)), None):
        yield "invalid_name", f"has a field {bad!r}: write a-z, 0-9 and _, a letter first"
    if len(set(shape.list)) < len(shape.list):
        yield "duplicate_variable", "has a field twice"
    if len(shape.list) > VARIABLES_MAX or not 1 <= shape.max <= LIST_MAX:
        yield "too_many", f"takes 1 to {LIST_MAX} items of at most {VARIABLES_MAX} fields"
    if shape.max_length is not None and not 1 <= shape.max_length <= LENGTH_MAX:
        yield "too_long", f"has a max_length that is not 1 to {LENGTH_MAX:,}"


def _price_problems(template: Template) -> Iterator[TemplateProblem]:
    if template.price < 0:
        yield TemplateProblem(code="invalid_price", part="price", text="it cannot be negative")
    for country, price in template.prices.items():
        if price < 0:
            yield TemplateProblem(code="invalid_price", part=f"prices.{country}", text="it cannot be negative")
        if not _COUNTRY.fullmatch(country):
            told = "write the country as an ISO code such as GB"
            yield TemplateProblem(code="invalid_price", part=f"prices.{country}", text=told)


def _locale_problems(template: Template) -> Iterator[TemplateProblem]:
    """Check that each translation has every part of the template, with the same variables."""
    for tag in (template.locale, *template.locales):
        if written(tag) != tag:
            told = f"{quoted(tag)} is no language tag: write {written(tag) or 'one such as de-AT'}"
            yield TemplateProblem(code="invalid_locale", part="locale", text=told)
    if template.locale in template.locales:
        told = f"{template.locale} is the language of the template itself"
        yield TemplateProblem(code="invalid_locale", part="locales", text=told)
    own = sources_of(template)
    for tag, parts in template.locales.items():
        theirs = sources_of(in_locale(msgspec.structs.replace(template, locale=""), tag))
        lacking = [part for part in own if getattr(parts, part) is None]
        if lacking and template.channel != "whatsapp":
            for part in lacking:
                told = f"it lacks its {part}, which the template's own language has"
                yield TemplateProblem(code="missing_part", part=part, locale=tag, text=told)
            continue
        yield from _source_problems(in_locale(msgspec.structs.replace(template, locale=""), tag), tag)
        if fewer := sorted(_names(own) - _names(theirs)):
            told = f"it does not use {', '.join(fewer)}, which the template's own language does"
            yield TemplateProblem(code="missing_variable", part="locales", locale=tag, text=told)


def _names(sources: dict[str, str]) -> set[str]:
    return {
        f"{use.list}.{use.name}" if use.list else use.name
        for part, source in sources.items()
        for use in compiled(source, part == "html").uses
    }


def layout_problems(
    new: Template, layouts: Mapping[str, Layout], had: Collection[str | None] = ()
) -> list[TemplateProblem]:
    """Return the problems of a template's layout: it must be an approved layout of the team, or one in `had`.

    `had`: layouts that the template already uses; these may be archived.
    """
    layout = layouts.get(new.layout or "")
    if new.layout is None or (layout and (layout.status == "approved" or new.layout in had)):
        return []
    why = f"{new.layout} is {layout.status}: take one that is approved" if layout else f"there is no {new.layout}"
    return [TemplateProblem(code="layout_not_approved" if layout else "layout_not_found", part="layout", text=why)]


def check_layout(layout: Layout) -> list[TemplateProblem]:
    """Return the problems of a layout: `{{content}}` must occur once per part, with no variables except the brand's."""
    problems = []
    if not (layout.html or layout.text):
        problems.append(
            TemplateProblem(code="missing_part", part="html, text", text="a layout needs at least one of them")
        )
    for part, source in sources_of(layout).items():
        if len(source) > LENGTHS[part]:
            told = f"it has {len(source):,} characters, {LENGTHS[part]:,} is the most"
            problems.append(TemplateProblem(code="too_long", part=part, text=told))
            continue
        cut = compiled(source, part == "html")
        for code, at, told in _layout_faults(source, cut):
            line = None if at is None else source.count("\n", 0, at) + 1
            problems.append(TemplateProblem(code=code, part=part, line=line, text=told))
    return problems


def _layout_faults(source: str, cut: Compiled) -> Iterator[tuple[str, int | None, str]]:
    if cut.contents != 1:
        again = [token.start() for token in TOKEN.finditer(source) if token[10]][1:]
        told = f"{{{{content}}}} stands in it {cut.contents} times: write it once"
        yield "missing_content", again[0] if again else None, told
    if cut.uses or cut.blocks:
        first = next(token for token in TOKEN.finditer(source) if token[1] != "brand" and not token[10])
        yield "unknown_variable", first.start(), "a layout has {{content}} and {{brand.…}} only"
    yield from unknown_brand_variables(source)
    yield from ((fault.code, fault.at, fault.text) for fault in cut.faults)
    yield from (("not_a_placeholder", at, f"{quoted(stray)} is not a placeholder") for at, stray in cut.strays)
