"""The template itself: found for a send, and what is wrong with one that is to be saved."""

import re
from collections.abc import Iterator

from heliograph.rules.limits import KIB
from heliograph.rules.refusals import TemplateNotFound, WrongTemplateChannel
from heliograph.rules.setup.records import Channel, Team, Template
from heliograph.rules.templates.placeholders import NAME, NAME_MAX, PLACEHOLDER, cure, known_of
from heliograph.rules.templates.render import CONTROL, PARTS
from heliograph.rules.templates.source import compiled
from heliograph.rules.templates.values import BRAND_NAME, asked_names
from heliograph.rules.text import quoted

VARIABLES_MAX = 100
EXAMPLE_MAX = 4096  # characters of an example value
# Characters as written, placeholders too; how long a text may become is checked when it is sent.
LENGTHS = {"subject": 1000, "html": 512 * KIB, "text": 512 * KIB, "body": 4096}

_COUNTRY = re.compile(r"[A-Z]{2}")


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
        elif CONTROL.search(template.subject):
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
        cut = compiled(source, part == "html")
        yield from (f"{part}: {quoted(stray)} is not a placeholder: {cure(stray, known)}" for stray in cut.strays)
        yield from (f"{part}: {problem}" for problem in cut.problems)
        undeclared = sorted(set(cut.names) - set(asked_names(template)))
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
