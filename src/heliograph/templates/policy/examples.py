"""Example values of variables for previews, with guesses for variables without an example."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from heliograph.domain.setup.records import Template, VariableType
from heliograph.templates.policy.formats import can_format
from heliograph.templates.policy.values import Values, formatted_uses, read_variables

GENERATED_ITEMS = 2  # generated items for a list without an example
# Pattern for the end of a variable's name → values of the first and the second list item; the first match wins.
_VALUES_BY_NAME_PATTERN = [
    (re.compile(rf"(?:^|[._])(?:{endings})$"), values)
    for endings, *values in (
        ("e?mail|address_email", "grace@example.com", "ada@example.com"),
        ("(?:first|given)_?name", "Grace", "Ada"),
        ("(?:last|family)_?name|surname", "Hopper", "Lovelace"),
        ("company|company_name|organi[sz]ation", "Example Ltd", "Sample Inc"),
        ("(?:customer|full|user)?_?name", "Grace Hopper", "Ada Lovelace"),
        ("url|link|href", "https://example.com/4711", "https://example.com/4712"),
        ("phone|mobile", "+15005550006", "+447400123456"),
        ("code|otp|pin", "123456", "654321"),
        ("date|day|due|until|(?:created|updated|expires|shipped|due)_?(?:at|on)", "2026-11-15", "2026-11-16"),
        ("time", "09:30", "14:00"),
        ("price|amount|total|subtotal|sum|tax|vat|balance|fee|cost", "42.50", "7.90"),
        ("quantity|count|qty|minutes|hours|days", "2", "1"),
        ("id|number|no|order|invoice|reference|ref|tracking", "4711", "4712"),
        ("currency", "EUR", "EUR"),
        ("country", "Austria", "Ireland"),
        ("city|town", "Vienna", "Dublin"),
        ("title|product|item", "Green tea", "Tea cup"),
    )
]
# Formats that are missing here are dates and times.
_EXAMPLES_BY_FORMAT = {"money": ("42.50", "7.90"), "number": ("1234.5", "12"), "percent": ("0.2", "0.1")}
_EXAMPLE_TIMES = ("2026-11-15T09:30:00Z", "2026-11-16T14:00:00Z")


def guess_value(name: str, row: int = 0) -> str:
    """Return a plausible value for a variable with this name, in a list item for its row; empty if unknown."""
    return next((values[row] for pattern, values in _VALUES_BY_NAME_PATTERN if pattern.search(name)), "")


def example_values(template: Template, default_for: Callable[[str], str] = str) -> Values:
    """Return example values of all variables.

    A list's example is a JSON array; a list without an example has GENERATED_ITEMS generated items. `default_for`:
    function that returns the value of a variable without an example.
    """
    formats = {(use.list, use.name): use.format for use in formatted_uses(template) if use.format}

    def generate(list_name: str | None, name: str, row: int = 0) -> str:
        format_, guessed = formats.get((list_name, name)), guess_value(name, row)
        if format_ is None:
            return guessed or f"{name} {row + 1}" if list_name else default_for(name)
        return guessed if can_format(format_, guessed) else _EXAMPLES_BY_FORMAT.get(format_.kind, _EXAMPLE_TIMES)[row]

    texts = {name: template.examples.get(name) or generate(None, name) for name in template.variables}
    lists = {}
    for name, shape in template.shapes.items():
        if shape.list:
            texts.pop(name, None)
            example_items = _parse_items(template.examples.get(name, ""))
            lists[name] = example_items or [
                Values({field: generate(name, field, row) for field in shape.list})
                for row in range(min(GENERATED_ITEMS, shape.max))
            ]
    return Values(texts, frozenset(), lists)


def example_text(template: Template, name: str) -> str:
    """Return the text that a form suggests for a variable: its example, else its name or the list items as JSON."""
    if name in template.examples or not template.shapes.get(name, VariableType()).list:
        return template.examples.get(name, name)
    items = [item.texts for item in example_values(template).lists[name]]
    return msgspec.json.encode(items).decode()


def parse_form_value(template: Template, name: str, text: str) -> Any:
    """Return the value that a person typed into a form for a variable; the text for a list is parsed as JSON."""
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
