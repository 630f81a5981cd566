"""Example values of variables for previews, with guesses for variables without an example."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from heliograph.domain.setup.records import Template, VariableType
from heliograph.templates.policy.formats import can_format
from heliograph.templates.policy.values import Values, formatted_uses, read_variables

GENERATED_ITEMS = 2  # generated items for a list without an example
# Matched against the end of a variable's name; the first match wins.
_VALUE_BY_NAME_PATTERN = [
    (re.compile(rf"(?:^|[._])(?:{endings})$"), value)
    for endings, value in (
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
_EXAMPLE_BY_FORMAT = {"money": "42.50", "number": "1234.5", "percent": "0.2"}  # every other format is a time
_EXAMPLE_TIME = "2026-11-15T09:30:00Z"


def guess_value(name: str) -> str:
    """Return a plausible value for a variable with this name; empty if unknown."""
    return next((value for pattern, value in _VALUE_BY_NAME_PATTERN if pattern.search(name)), "")


def example_values(template: Template, default_for: Callable[[str], str] = str) -> Values:
    """Return the example values. A list's example is a JSON array; a list without one gets ITEMS generated items.

    `default_for`: function that returns the value of a variable without an example.
    """
    formats = {(use.list, use.name): use.format for use in formatted_uses(template) if use.format}

    def generate(list_name: str | None, name: str) -> str:
        format_, guessed = formats.get((list_name, name)), guess_value(name)
        if format_ is None:
            return guessed if list_name else default_for(name)
        return guessed if can_format(format_, guessed) else _EXAMPLE_BY_FORMAT.get(format_.kind, _EXAMPLE_TIME)

    texts = {name: template.examples.get(name) or generate(None, name) for name in template.variables}
    lists = {}
    for name, shape in template.shapes.items():
        if shape.list:
            texts.pop(name, None)
            example_items = _parse_items(template.examples.get(name, ""))
            item = {field: generate(name, field) or field for field in shape.list}
            lists[name] = example_items or [Values(item)] * min(GENERATED_ITEMS, shape.max)
    return Values(texts, frozenset(), lists)


def example_text(template: Template, name: str) -> str:
    """Return the text that a form suggests for a variable: its example, else its name, or list items as JSON."""
    if name in template.examples or not template.shapes.get(name, VariableType()).list:
        return template.examples.get(name, name)
    items = [item.texts for item in example_values(template).lists[name]]
    return msgspec.json.encode(items).decode()


def parse_form_value(template: Template, name: str, text: str) -> Any:
    """Return the value typed for a variable; a list is parsed as JSON."""
    if not template.shapes.get(name, VariableType()).list:
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text  # rejected later as a wrong type


def _parse_items(example: str) -> list[Values]:
    try:
        items: Any = msgspec.json.decode(example, type=list[dict[str, str | int | float | bool]])
    except msgspec.DecodeError:
        return []
    return read_variables({"items": items}).lists["items"]
