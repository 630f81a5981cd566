"""A caller's variables: read, and held against what a template declares (contract 5)."""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from heliograph.rules.limits import BODY_OCTETS_MAX, VARIABLES_OCTETS_MAX
from heliograph.rules.refusals import BodyTooLong, InvalidRequest, MissingVariable, UnknownVariable
from heliograph.rules.setup.records import Template
from heliograph.rules.templates.placeholders import NAME_MAX

_REFUSED_BY_META = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]| {5}")
BRAND_NAME = "brand.name"  # among a WhatsApp template's variables: which position the service fills itself
READ_MAX = 10_000  # variables of a caller that are looked at: no template declares so many


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


def leaf_texts(given: dict[str, Any] | None) -> Iterator[str]:
    """The texts among a caller's variables, as many as are looked at."""
    return (value for _, value in islice(_leaves(given or {}, ""), READ_MAX) if isinstance(value, str))


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


def only_declared(template: Template | None, given: dict[str, Any] | None) -> dict[str, Any] | None:
    """What the template asks for, of values that another service's caller gives: there, others are ignored."""
    if template is None or not given:
        return given
    names = set(asked_names(template))
    found = ((path.removeprefix("customer."), value) for path, value in _leaves(given, ""))
    return {name: value for name, value in islice(found, READ_MAX) if name in names}


def wrong_passthrough(template: Template | None) -> str:
    """Why a template cannot take any text as its one value; empty: it can."""
    if template is None:
        return "is no template of the team"
    if template.channel == "email":
        return "is a template for email; free text goes out by SMS or WhatsApp"
    count = len(asked_names(template))
    return "" if count == 1 else f"has {count} variables; the text needs a template with one"


def with_fallback(template: Template, values: dict[str, str]) -> dict[str, str]:
    if not template.fallback:
        return values
    return {name: _text_of(value, name) for name, value in template.fallback.items()} | values


def with_brand(template: Template, values: Mapping[str, str], brand: Mapping[str, str]) -> dict[str, str]:
    """A value for each declared variable, the brand's name where it has a position (contract 5)."""
    return {**values, **({BRAND_NAME: brand["name"]} if BRAND_NAME in template.variables else {})}


def check_parameters(template: Template, values: Mapping[str, str]) -> None:
    """Meta takes no empty value, no line break or tab in one, and no more than four spaces in a row."""
    given = {name: values.get(name, "") for name in template.variables}
    wrong = [name for name, value in given.items() if not value.strip() or _REFUSED_BY_META.search(value)]
    if wrong:
        raise InvalidRequest(
            f"WhatsApp takes no value that is empty or has a line break, a tab or more than four spaces in a row: "
            f"{', '.join(wrong)}. Give other values.",
            param="variables",
            details={"variables": wrong},
        )


def missing_and_unknown(template: Template, values: Mapping[str, str]) -> tuple[list[str], list[str]]:
    declared = dict.fromkeys(asked_names(template))
    missing = [name for name in declared if name not in {*values, *template.optional, *template.fallback}]
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


def check_size(size: int, what: str, *, param: str, most: int = BODY_OCTETS_MAX) -> None:
    if size > most:
        raise BodyTooLong(f"The {what} {size} bytes, {most} is the most. {BodyTooLong.fix}", param=param)
