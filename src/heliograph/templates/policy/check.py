"""Template lookup for a send, and validation of templates and layouts."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from operator import itemgetter
from typing import Literal

import msgspec

from heliograph.domain.limits import HTML_MAX
from heliograph.domain.mail.unsubscribe import CATEGORY, PLACEHOLDER, VARIABLE
from heliograph.domain.refusals import TemplateNotFound, WrongTemplateChannel
from heliograph.domain.setup.key_restrictions import check_template_use
from heliograph.domain.setup.records import Channel, Key, Layout, LocaleParts, Team, TeamRecord, Template, VariableType
from heliograph.domain.text import quoted
from heliograph.templates.policy.formats import is_timezone
from heliograph.templates.policy.locales import localize, normalize_tag
from heliograph.templates.policy.placeholders import (
    BRAND_FIELDS,
    NAME,
    NAME_MAX,
    TOKEN,
    ItemFields,
    placeholder_advice,
)
from heliograph.templates.policy.render import CONTROL_CHARACTER
from heliograph.templates.policy.source import (
    PARTS,
    CompiledSource,
    EachBlock,
    IfBlock,
    Pieces,
    Slot,
    VariableUse,
    compile_source,
)
from heliograph.templates.policy.values import BRAND_NAME, required_names
from heliograph.templates.policy.variable_types import item_fields_of

META_CATEGORIES = ("AUTHENTICATION", "UTILITY", "MARKETING")
VARIABLES_MAX = 100
EXAMPLE_MAX = 4096  # characters of an example value
LIST_ITEMS_MAX = 200  # maximum items of a list variable
MAX_LENGTH_LIMIT = 100_000  # maximum `max_length` of a variable
LOCALES_MAX = 50
EXPANDED_PIECES_MAX = 100_000  # maximum texts and placeholders of a part whose lists are all full
# Maximum characters per part, placeholders included. The rendered length is checked when sending.
LENGTH_MAX_BY_PART = {"subject": 1000, "html": HTML_MAX, "text": HTML_MAX, "body": 4096}

_COUNTRY_CODE = re.compile(r"[A-Z]{2}")
_FOREIGN_SYNTAX = re.compile(r"\{%|\{\{\{")
_ADVICE_BY_SYNTAX = {
    "{%": "Use {{#if name}} or {{#each items}}",
    "{{{": "Use two braces, as in {{name}}",
}
UNDECLARED_MAX = 200  # maximum undeclared variables reported per part
FOREIGN_SYNTAX_MAX = 1000  # maximum occurrences of foreign template syntax that are examined

Level = Literal["error", "warning"]


class TemplateProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of a template or layout, with its location and a message for people."""

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


def _error(code: str, part: str, text: str, locale: str | None = None) -> TemplateProblem:
    return TemplateProblem(code=code, part=part, locale=locale, text=text)


def find_template(team: Team, template_id: str, channel: Channel, restricted_key: Key | None = None) -> Template:
    """Return the approved template that a send names. `restricted_key`: the caller's key if it has restrictions."""
    template = team.templates.get(template_id)
    if template is None or template.status != "approved":
        raise TemplateNotFound(
            f"The team has no approved template {quoted(template_id)}. {TemplateNotFound.fix}", param="template_id"
        )
    if restricted_key is not None:
        check_template_use(restricted_key, template_id)
    if template.channel != channel:
        raise WrongTemplateChannel(
            f"The template {template_id} is for {template.channel}, not for {channel}. {WrongTemplateChannel.fix}",
            param="template_id",
        )
    return template


def placeholder_names(template: Template) -> list[str]:
    """Return the variables used in the template, in order; for WhatsApp also the brand name, which is a parameter."""
    fields = item_fields_of(template)
    compiled_parts = [
        compile_source(source, part == "html", fields) for part, source in sources_by_part(template).items()
    ]
    names = [use.name for part_compiled in compiled_parts for use in part_compiled.uses if use.list is None]
    if template.channel == "whatsapp" and template.body:
        return list(dict.fromkeys(_whatsapp_parameters(compile_source(template.body, False).pieces)))
    return list(dict.fromkeys(names))


def _whatsapp_parameters(pieces: Pieces) -> Iterator[str]:
    for piece in pieces:
        if isinstance(piece, Slot):
            name = f"{piece.scope}.{piece.name}".removeprefix("customer.")
            if piece.scope == "customer" or name == BRAND_NAME:
                yield name


def sources_by_part(template: Template | Layout | LocaleParts) -> dict[str, str]:
    return {part: source for part in PARTS if (source := getattr(template, part, None)) is not None}


def total_length(template: Template | Layout) -> int:
    """Return the number of characters in all parts and languages."""
    translations = template.locales.values() if isinstance(template, Template) else ()
    return sum(len(source) for version in (template, *translations) for source in sources_by_part(version).values())


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
    for part, limit in LENGTH_MAX_BY_PART.items():
        for locale, texts in [(None, template), *template.locales.items()]:
            size = len(getattr(texts, part) or "")
            if size > limit:
                message = f"it has {size:,} characters, the maximum is {limit:,}"
                yield _error("too_long", part, message, locale)
    for field, entries in (("variables", template.variables), ("examples", template.examples)):
        if len(entries) > VARIABLES_MAX:
            yield _error("too_many", field, f"there are {len(entries)}, the maximum is {VARIABLES_MAX}")
    if len(template.locales) > LOCALES_MAX:
        yield _error("too_many", "locales", f"there are {len(template.locales)}, the maximum is {LOCALES_MAX}")
    if any(len(name) > NAME_MAX for name in template.variables):
        yield _error("invalid_name", "variables", f"a name has at most {NAME_MAX} characters")
    if any(len(name) > NAME_MAX or len(value) > EXAMPLE_MAX for name, value in template.examples.items()):
        yield _error("too_long", "examples", f"a value has at most {EXAMPLE_MAX:,} characters, its name {NAME_MAX}")


def _part_problems(template: Template) -> Iterator[TemplateProblem]:
    if template.channel == "email":
        if not template.subject:
            yield _error("missing_part", "subject", "an email template needs one")
        elif CONTROL_CHARACTER.search(template.subject):
            yield _error("invalid_subject", "subject", "it must be one line without control characters")
        if not (template.html or template.text):
            yield _error("missing_part", "html, text", "an email template needs at least one of them")
    elif not template.body:
        channel_name = "SMS" if template.channel == "sms" else "WhatsApp"
        yield _error("missing_part", "body", f"a template for {channel_name} needs one")
    yield from _category_problems(template)
    if template.layout and template.channel != "email":
        yield _error("misplaced_layout", "layout", "only an email template has one")
    yield from _source_problems(template, None)


def _category_problems(template: Template) -> Iterator[TemplateProblem]:
    category = template.category
    if template.channel == "whatsapp" and category not in META_CATEGORIES:
        yield _error("missing_part", "category", "a WhatsApp template needs AUTHENTICATION, UTILITY or MARKETING")
    elif template.channel == "sms" and category is not None:
        yield _error("invalid_category", "category", "an SMS template has none")
    elif template.channel == "email" and category is not None and not CATEGORY.fullmatch(category):
        yield _error("invalid_category", "category", "use up to 32 characters a-z, 0-9, _ and -")


def _source_problems(template: Template, locale: str | None) -> Iterator[TemplateProblem]:
    """Yield the problems of a template's parts in one language."""
    for part, written in sources_by_part(template).items():
        compiled_source = compile_source(written, part == "html", item_fields_of(template))
        source = compiled_source.source

        def problem(code: str, offset: int | None, text: str) -> TemplateProblem:
            line = None if offset is None else source.count("\n", 0, offset) + 1  # noqa: B023
            return TemplateProblem(code=code, part=part, locale=locale, line=line, text=text)  # noqa: B023

        first_by_syntax = {
            match[0]: match.start()
            for match in reversed(list(islice(_FOREIGN_SYNTAX.finditer(source), FOREIGN_SYNTAX_MAX)))
        }
        for syntax, offset in first_by_syntax.items():
            yield problem("foreign_syntax", offset, f"{syntax} isn't supported. {_ADVICE_BY_SYNTAX[syntax]}")
        for offset, invalid in compiled_source.invalid_placeholders:
            if not invalid.startswith("{{{"):
                yield problem(
                    "not_a_placeholder",
                    offset,
                    f"{quoted(invalid)} is not a placeholder: {placeholder_advice(invalid)}",
                )
        yield from (problem(fault.code, fault.offset, fault.text) for fault in compiled_source.faults)
        for offset, message in islice(_undeclared_uses(template, compiled_source.uses), UNDECLARED_MAX):
            yield problem("unknown_variable", offset, message)
        for name, offset in first_offsets_in_scope(source, "customer").items():
            if template.shapes.get(name, VariableType()).list:
                message = (
                    f"{name} is a list: write {{{{#each customer.{name}}}}} … {{{{/each}}}} with its fields, as in"
                )
                yield problem("unknown_variable", offset, f"{message} {{{{item.{template.shapes[name].list[0]}}}}}")
        if compiled_source.content_count:
            offset = next(token.start() for token in TOKEN.finditer(source) if token[10])
            yield problem("misplaced_placeholder", offset, "{{content}} only works in layouts")
        if disallowed := compiled_source.blocks & _disallowed_blocks(template.channel, part):
            first = next(token for token in TOKEN.finditer(source) if disallowed & {token[5], token[9]})
            location = "a WhatsApp template" if template.channel == "whatsapp" else f"the {part}"
            message = f"{{{{#{first[5] or first[9]}}}}} can't be used in {location}"
            yield problem("misplaced_block", first.start(), message)
        if _expanded_count(compiled_source.pieces, template.shapes) > EXPANDED_PIECES_MAX:
            yield problem("too_long", None, "its lists can become too long: lower a max")


def _disallowed_blocks(channel: Channel, part: str) -> set[str]:
    return {"each", "if"} if channel == "whatsapp" else {"each"} if part == "subject" else set()


def _undeclared_uses(template: Template, uses: Mapping[VariableUse, int]) -> Iterator[tuple[int, str]]:
    """Yield (offset, message) for each variable that is not declared or cannot be used at its position."""
    names = required_names(template)
    declared = {*names, *([VARIABLE] if can_unsubscribe(template) else ())}
    formatted_at = next((offset for use, offset in uses.items() if use.name == VARIABLE and use.format), None)
    if formatted_at is not None and VARIABLE not in names:
        yield formatted_at, f"{PLACEHOLDER} has no format"
    offset_by_use: dict[VariableUse, int] = {}
    for use, offset in uses.items():
        offset_by_use.setdefault(msgspec.structs.replace(use, format=None), offset)
    for use, offset in offset_by_use.items():
        fields = template.shapes.get(use.list or use.name, VariableType()).list
        if use.list == "":
            yield offset, f"{{{{item.{use.name}}}}} only works inside {{{{#each …}}}}"
        elif use.list is not None and use.name not in fields and use.list in template.shapes:
            yield offset, f"{{{{item.{use.name}}}}} is not a field of {use.list} in variables"
        elif use.list is None and use.name == VARIABLE and use.name not in declared and template.channel == "email":
            yield offset, f"{PLACEHOLDER} needs a category of the template"
        elif use.list is None and use.name not in declared:
            yield offset, f"{{{{customer.{use.name}}}}} is not in variables"
        elif use.list is None and use.is_list and not fields:
            yield offset, f'{use.name} is not a list: declare it as {{ name = "{use.name}", list = ["…"] }}'


def first_offsets_in_scope(source: str, scope: str) -> dict[str, int]:
    """Map each variable of `scope` to the offset of its first value placeholder, ignoring `#if` and `#each`."""
    return {token[2]: token.start() for token in reversed(list(TOKEN.finditer(source))) if token[1] == scope}


def unknown_brand_variables(source: str) -> Iterator[tuple[str, int, str]]:
    """Yield (code, offset, message) for each `brand.*` placeholder that does not exist."""
    for name, offset in sorted(first_offsets_in_scope(source, "brand").items(), key=itemgetter(1)):
        if name not in BRAND_FIELDS:
            examples = " and ".join(f"{{{{brand.{field}}}}}" for field in BRAND_FIELDS)
            yield "unknown_variable", offset, f"{{{{brand.{name}}}}} is always empty: a brand only has {examples}"


def _expanded_count(pieces: Pieces, shapes: dict[str, VariableType]) -> int:
    """Return the maximum number of rendered pieces, with each list at its maximum number of items."""
    total = len(pieces)
    for piece in pieces:
        if isinstance(piece, EachBlock | IfBlock):
            repetitions = shapes.get(piece.name, VariableType()).max if isinstance(piece, EachBlock) else 1
            total += max(
                repetitions * _expanded_count(piece.pieces, shapes), _expanded_count(piece.else_pieces, shapes)
            )
    return total


def _variable_problems(template: Template) -> Iterator[TemplateProblem]:
    for name in dict.fromkeys(template.variables):
        if template.variables.count(name) > 1:
            yield _error("duplicate_variable", "variables", f"{name!r} is there twice")
        if not NAME.fullmatch(name):
            message = f"{name!r} is not a valid name: use a-z, 0-9 and _, starting with a letter"
            yield _error("invalid_name", "variables", message)
        if name == BRAND_NAME and template.channel == "whatsapp":
            continue
        if name.startswith(("customer.", "brand.")):
            yield _error("invalid_name", "variables", f"omit the first part of {name!r}")
    for name, shape in template.shapes.items():
        for code, message in _type_problems(shape, template.channel):
            yield _error(code, "variables", f"{name!r} {message}")
    for name in template.optional:
        if name not in template.variables:
            yield _error("unknown_variable", "optional", f"{name!r} is not in variables")
        elif name == BRAND_NAME:
            yield _error("invalid_name", "optional", f"{name!r} is always available")
    if not is_timezone(template.timezone):
        message = f"{quoted(template.timezone)} is not a time zone: use a name such as Europe/Vienna"
        yield _error("invalid_timezone", "timezone", message)


def _type_problems(shape: VariableType, channel: Channel) -> Iterator[tuple[str, str]]:
    if shape.list and channel == "whatsapp":
        yield "misplaced_block", "is a list, which WhatsApp templates don't support"
    if invalid_field := next((field for field in shape.list if not NAME.fullmatch(field)), None):
        yield "invalid_name", f"has the invalid field {invalid_field!r}: use a-z, 0-9 and _, starting with a letter"
    if len(set(shape.list)) < len(shape.list):
        yield "duplicate_variable", "has a duplicate field"
    if len(shape.list) > VARIABLES_MAX or not 1 <= shape.max <= LIST_ITEMS_MAX:
        yield "too_many", f"takes 1 to {LIST_ITEMS_MAX} items of at most {VARIABLES_MAX} fields"
    if shape.max_length is not None and not 1 <= shape.max_length <= MAX_LENGTH_LIMIT:
        yield "too_long", f"has a max_length that is not 1 to {MAX_LENGTH_LIMIT:,}"


def _price_problems(template: Template) -> Iterator[TemplateProblem]:
    if template.price < 0:
        yield _error("invalid_price", "price", "it can't be negative")
    for country, price in template.prices.items():
        if price < 0:
            yield _error("invalid_price", f"prices.{country}", "it can't be negative")
        if not _COUNTRY_CODE.fullmatch(country):
            yield _error("invalid_price", f"prices.{country}", "use an ISO country code such as GB")


def _locale_problems(template: Template) -> Iterator[TemplateProblem]:
    """Yield a problem for each translation that lacks a part of the template or has different variables."""
    for tag in (template.locale, *template.locales):
        if normalize_tag(tag) != tag:
            message = f"{quoted(tag)} is not a language tag: use {normalize_tag(tag) or 'one such as de-AT'}"
            yield _error("invalid_locale", "locale", message)
    if template.locale in template.locales:
        yield _error("invalid_locale", "locales", f"{template.locale} is the language of the template itself")
    default_sources, fields = sources_by_part(template), item_fields_of(template)
    for tag, parts in template.locales.items():
        localized = localize(msgspec.structs.replace(template, locale=""), tag)
        translated_sources = sources_by_part(localized)
        missing_parts = [part for part in default_sources if getattr(parts, part) is None]
        if missing_parts and template.channel != "whatsapp":
            for part in missing_parts:
                yield _error("missing_part", part, f"it lacks its {part}, which the template's own language has", tag)
            continue
        yield from _source_problems(localized, tag)
        if unused_names := sorted(_used_names(default_sources, fields) - _used_names(translated_sources, fields)):
            message = f"it does not use {', '.join(unused_names)}, which the template's own language does"
            yield _error("missing_variable", "locales", message, tag)


def _used_names(sources: dict[str, str], item_fields: ItemFields) -> set[str]:
    return {
        f"{use.list}.{use.name}" if use.list else use.name
        for part, source in sources.items()
        for use in compile_source(source, part == "html", item_fields).uses
    }


def can_unsubscribe(template: Template) -> bool:
    """Return whether emails from the template contain an unsubscribe URL."""
    return template.channel == "email" and template.category is not None


def category_problems(new: Template, categories: Collection[str]) -> list[TemplateProblem]:
    """Return a problem if an email template's category is not one of the team's `categories`."""
    if not can_unsubscribe(new) or new.category in categories:
        return []
    message = f"{quoted(new.category or '')} is not one of the team's categories ({', '.join(categories) or 'none'})"
    return [_error("unknown_category", "category", message)]


def category_in_use(team: TeamRecord, templates: Iterable[Template]) -> str:
    """Return an error text if an approved template has a category that the team does not have, else an empty text."""
    for template in templates:
        if template.status == "approved" and category_problems(template, team.categories):
            return f"The template {template.id} has the category {template.category}: keep it, or change the template."
    return ""


def uses_unsubscribe_url(layout: Layout) -> bool:
    return any(
        use.name == VARIABLE
        for part, source in sources_by_part(layout).items()
        if VARIABLE in source
        for use in compile_source(source, part == "html").uses
    )


def layout_problems(
    new: Template, layouts: Mapping[str, Layout], previous_layouts: Collection[str | None] = ()
) -> list[TemplateProblem]:
    """Return a problem unless the template's layout is an approved layout of the team or in `previous_layouts`.

    `previous_layouts`: layouts that the template already uses; these may be archived.
    """
    layout = layouts.get(new.layout or "")
    if layout and not can_unsubscribe(new) and uses_unsubscribe_url(layout):
        message = f"{new.layout} uses {PLACEHOLDER}: give the template a category"
        return [_error("unknown_variable", "layout", message)]
    if new.layout is None or (layout and (layout.status == "approved" or new.layout in previous_layouts)):
        return []
    message = f"{new.layout} is {layout.status}: use an approved layout" if layout else f"there is no {new.layout}"
    return [_error("layout_not_approved" if layout else "layout_not_found", "layout", message)]


def check_layout(layout: Layout) -> list[TemplateProblem]:
    """Return the problems of a layout.

    `{{content}}` must occur once per part. The only variables are those of the brand and the unsubscribe URL.
    """
    problems = []
    if not (layout.html or layout.text):
        problems.append(_error("missing_part", "html, text", "a layout needs at least one of them"))
    for part, source in sources_by_part(layout).items():
        if len(source) > LENGTH_MAX_BY_PART[part]:
            message = f"it has {len(source):,} characters, the maximum is {LENGTH_MAX_BY_PART[part]:,}"
            problems.append(_error("too_long", part, message))
            continue
        compiled_source = compile_source(source, part == "html")
        for code, offset, message in _layout_faults(compiled_source):
            line = None if offset is None else compiled_source.source.count("\n", 0, offset) + 1
            problems.append(TemplateProblem(code=code, part=part, line=line, text=message))
    return problems


def _layout_faults(parsed: CompiledSource) -> Iterator[tuple[str, int | None, str]]:
    source = parsed.source
    if parsed.content_count != 1:
        repeated = [token.start() for token in TOKEN.finditer(source) if token[10]][1:]
        message = f"{{{{content}}}} appears {parsed.content_count} times: use it once"
        yield "missing_content", repeated[0] if repeated else None, message
    if parsed.blocks or any(use.name != VARIABLE or use.format for use in parsed.uses):
        first = next(
            token
            for token in TOKEN.finditer(source)
            if token[1] != "brand" and not token[10] and (token[2], token[3]) != (VARIABLE, None)
        )
        yield (
            "unknown_variable",
            first.start(),
            f"a layout can only use {{{{content}}}}, {{{{brand.…}}}} and {PLACEHOLDER}",
        )
    yield from unknown_brand_variables(source)
    yield from ((fault.code, fault.offset, fault.text) for fault in parsed.faults)
    yield from (
        ("not_a_placeholder", offset, f"{quoted(invalid)} is not a placeholder")
        for offset, invalid in parsed.invalid_placeholders
    )
