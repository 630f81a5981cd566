"""Examples: what stands for a variable in a preview, and what is offered where nobody gave one."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from heliograph.domain.setup.records import Shape, Template
from heliograph.templates.policy.formats import can_format
from heliograph.templates.policy.values import Values, formatted_uses, read_variables

ITEMS = 2  # of a list that has no example
# By the last words of a name, the first that fits.
_GUESSES = [
    (re.compile(rf"(?:^|[._])(?:{words})$"), value)
    for words, value in (
        ("e?mail|address_email", "grace@example.com"),
        ("(?:first|given)_?name", "Grace"),
        ("(?:last|family)_?name|surname", "Hopper"),
        ("company|company_name|organi[sz]ation", "Example Ltd"),
        ("(?:customer|full|user)?_?name", "Grace Hopper"),
        ("url|link|href", "https://example.com/4711"),
        ("phone|mobile", "+15005550006"),
        ("code|otp|pin", "123456"),
        ("date|day|due|until|(?:created|updated|expires|shipped|due)_?(?:at|on)", "2026-11-15"),
        ("time", "09:30"),
        ("price|amount|total|subtotal|sum|tax|vat|balance|fee|cost", "42.50"),
        ("quantity|count|qty|minutes|hours|days", "2"),
        ("id|number|no|order|invoice|reference|ref|tracking", "4711"),
        ("currency", "EUR"),
        ("country", "Austria"),
        ("city|town", "Vienna"),
        ("title|product|item", "Green tea"),
    )
]
_OF_FORMATS = {"money": "42.50", "number": "1234.5", "percent": "0.2"}  # all others: of times
_MOMENT = "2026-11-15T09:30:00Z"


def guess(name: str) -> str:
    """Guess a value that a variable of this name may have; empty: nobody can tell."""
    return next((value for pattern, value in _GUESSES if pattern.search(name)), "")


def example_values(template: Template, without: Callable[[str], str] = str) -> Values:
    """Return the examples as values; a list's is a JSON array, and a few made-up items where there is none.

    `without`: what stands for a variable that has none, by its name.
    """
    formats = {(use.list, use.name): use.format for use in formatted_uses(template) if use.format}

    def made(of: str | None, name: str) -> str:
        format_, guessed = formats.get((of, name)), guess(name)
        if format_ is None:
            return guessed if of else without(name)
        return guessed if can_format(format_, guessed) else _OF_FORMATS.get(format_.kind, _MOMENT)

    texts = {name: template.examples.get(name) or made(None, name) for name in template.variables}
    lists = {}
    for name, shape in template.shapes.items():
        if shape.list:
            texts.pop(name, None)
            given = _items(template.examples.get(name, ""))
            item = {field: made(name, field) or field for field in shape.list}
            lists[name] = given or [Values(item)] * min(ITEMS, shape.max)
    return Values(texts, frozenset(), lists)


def example_text(template: Template, name: str) -> str:
    """Write what a form offers for a variable: its example, else its name, or items of a list."""
    if name in template.examples or not template.shapes.get(name, Shape()).list:
        return template.examples.get(name, name)
    items = [item.texts for item in example_values(template).lists[name]]
    return msgspec.json.encode(items).decode()


def given_value(template: Template, name: str, text: str) -> Any:
    """Read what was typed for a variable: a list is written as JSON."""
    if not template.shapes.get(name, Shape()).list:
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text  # refused as any other type is


def _items(example: str) -> list[Values]:
    try:
        given: Any = msgspec.json.decode(example, type=list[dict[str, str | int | float | bool]])
    except msgspec.DecodeError:
        return []
    return read_variables({"items": given}).lists["items"]
