"""Parses a caller's variables and validates them against a template's declarations (contract 5, 18)."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from heliograph.domain.limits import BODY_OCTETS_MAX, VARIABLES_OCTETS_MAX
from heliograph.domain.mail.unsubscribe import VARIABLE
from heliograph.domain.refusals import (
    BodyTooLong,
    InvalidRequest,
    InvalidVariable,
    ListTooLong,
    MissingVariable,
    Refusal,
    UnknownVariable,
)
from heliograph.domain.setup.records import Template, VariableType
from heliograph.templates.policy.formats import Region, can_format, format_value, replace_no_break_spaces
from heliograph.templates.policy.placeholders import NAME_MAX
from heliograph.templates.policy.source import PARTS, VariableUse, compile_source
from heliograph.templates.policy.variable_types import item_fields_of

BRAND_NAME = "brand.name"  # variable of a WhatsApp template whose value the service inserts
# Maximum variables, list items and item fields that are read from a request; no template declares this many.
VARIABLES_READ_MAX, ITEMS_READ_MAX, FIELDS_READ_MAX = 10_000, 1_000, 200
_REJECTED_BY_META = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]| {5}")
LISTED_NAMES_MAX = 100  # maximum variable names in an error


class Values(msgspec.Struct, frozen=True):
    """Values of customer variables, or of the fields of one list item. Names lack the prefix `customer.`."""

    texts: dict[str, str] = {}
    false: frozenset[str] = frozenset()  # names whose value is the boolean false
    lists: dict[str, "list[Values]"] = {}
    empty_objects: frozenset[str] = frozenset()  # names whose value is an object without members

    def is_true(self, name: str) -> bool:
        """Return whether `{{#if name}}` shows its content: 0 counts as true; "", false and an empty list as false."""
        return bool(self.texts.get(name) or self.lists.get(name)) and name not in self.false


NO_VALUES = Values()


def read_variables(variables: dict[str, Any] | None) -> Values:
    """Parse a caller's variables; null counts as missing.

    The prefix `brand.` is kept, so that such a name is rejected as an unknown variable: no template declares one.
    """
    return _read_values(variables, "") if variables else NO_VALUES


def _read_values(variables: Mapping[str, Any], prefix: str) -> Values:
    texts: dict[str, str] = {}
    lists: dict[str, list[Values]] = {}
    false = []
    empty_objects = []
    for path, value in islice(_flatten(variables, ""), FIELDS_READ_MAX if prefix else VARIABLES_READ_MAX):
        name = path if prefix else path.removeprefix("customer.")
        if isinstance(value, dict):  # an empty object; the members of other objects are already flattened
            if prefix:
                raise _object_error(prefix + name)
            if name != "customer":
                empty_objects.append(name)
            continue
        if isinstance(value, list) and not prefix:
            items = _read_items(value, name)
            is_consistent = lists.setdefault(name, items) == items
        else:
            text = _to_text(value, prefix + name)
            is_consistent = texts.setdefault(name, text) == text
        if not is_consistent or (name in lists and name in texts):
            raise InvalidRequest(
                f"The variable {prefix}{name!r} is given twice with different values. Send it once.",
                param=f"variables.{prefix}{name}",
            )
        if value is False:
            false.append(name)
    return Values(texts, frozenset(false), lists, frozenset(empty_objects))


def _read_items(raw_items: list[Any], name: str) -> list[Values]:
    items = []
    for index, item in enumerate(islice(raw_items, ITEMS_READ_MAX)):
        if not isinstance(item, dict):
            raise InvalidRequest(
                f"The variable {name}[{index}] is not an object. A list holds objects with the fields of its items.",
                param=f"variables.{name}",
            )
        items.append(_read_values(item, f"{name}[{index}]."))
    return items


def check_variables_size(variables: dict[str, Any] | None) -> None:
    if variables:
        size = len(msgspec.json.encode(variables))
        check_size(size, "variables have, as JSON,", param="variables", limit=VARIABLES_OCTETS_MAX)


def _flatten(group: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in group.items():
        if isinstance(value, dict) and value:
            inner_prefix = f"{prefix}{key}."
            # No template declares a name this long. All nested members share the shortened name, to limit the output.
            yield from (
                _flatten(value, inner_prefix)
                if len(inner_prefix) <= 2 * NAME_MAX
                else [(f"{inner_prefix[:NAME_MAX]}…", "")]
            )
        elif value is not None:
            name = prefix + key
            yield (name, value) if len(name) <= 2 * NAME_MAX else (f"{name[:NAME_MAX]}…", "")


def iterate_texts(variables: dict[str, Any] | None) -> Iterator[str]:
    """Yield the text values among a caller's variables, within the limits that `read_variables` applies."""
    for _, value in islice(_flatten(variables or {}, ""), VARIABLES_READ_MAX):
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from (
                text for item in islice(value, ITEMS_READ_MAX) if isinstance(item, dict) for text in iterate_texts(item)
            )


def _to_text(value: Any, name: str) -> str:
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


def required_names(template: Template) -> list[str]:
    """Return the declared variables that callers must provide: all except the brand name."""
    return [name for name in template.variables if name != BRAND_NAME]


def keep_declared(template: Template | None, variables: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return only the declared variables, because clients of compatibility APIs may send others."""
    if template is None or not variables:
        return variables
    names = set(required_names(template))
    named_values = ((path.removeprefix("customer."), value) for path, value in _flatten(variables, ""))
    return {
        name: _keep_declared_fields(template.shapes.get(name), value)
        for name, value in islice(named_values, VARIABLES_READ_MAX)
        if name in names and value != {}
    }


def _keep_declared_fields(shape: VariableType | None, value: Any) -> Any:
    if shape is None or not shape.list or not isinstance(value, list):
        return value
    fields = set(shape.list)
    return [
        {
            path: inner
            for path, inner in islice(_flatten(item, ""), VARIABLES_READ_MAX)
            if path in fields and inner != {}
        }
        if isinstance(item, dict)
        else item
        for item in islice(value, ITEMS_READ_MAX)
    ]


def passthrough_error(template: Template | None) -> str:
    """Return why a template cannot send a caller's free text as its only variable; empty if it can."""
    if template is None:
        return "is no template of the team"
    if template.channel == "email":
        return "is a template for email; free text goes out by SMS or WhatsApp"
    count = len(required_names(template))
    return "" if count == 1 else f"has {count} variables; the text needs a template with one"


def with_fallback_values(template: Template, values: Values) -> Values:
    if not template.fallback:
        return values
    return msgspec.structs.replace(values, texts=read_variables(template.fallback).texts | values.texts)


def with_unsubscribe_url(template: Template, values: Values, url: str) -> Values:
    """Return the values with the unsubscribe URL, unless the template declares a variable of this name."""
    if VARIABLE in template.variables:
        return values
    return msgspec.structs.replace(values, texts=values.texts | {VARIABLE: url})


def check_meta_parameters(template: Template, values: Mapping[str, str]) -> None:
    """Reject values that Meta does not accept.

    Meta rejects empty values, and values with a line break, a tab, or more than four spaces in a row. An optional value
    that is absent is not an error (contract 5).
    """
    declared_values = {name: values[name] for name in template.variables if name in values}
    invalid = [name for name, value in declared_values.items() if not value.strip() or _REJECTED_BY_META.search(value)]
    if invalid:
        raise InvalidRequest(
            f"WhatsApp takes no value that is empty or has a line break, a tab or more than four spaces in a row: "
            f"{', '.join(invalid)}. Give other values.",
            param="variables",
            details={"variables": invalid},
        )


def body_values(template: Template, values: Values, brand: Mapping[str, str]) -> dict[str, str]:
    """Return the text of each declared variable as formatted in the body, with the brand name (contract 5)."""
    texts = {**values.texts, **({BRAND_NAME: brand["name"]} if BRAND_NAME in template.variables else {})}
    if template.body and "|" in template.body:
        region = Region(template.locale, template.timezone)
        for use in formatted_uses(template):
            if use.format and use.name in values.texts:
                texts[use.name] = replace_no_break_spaces(format_value(use.format, values.texts[use.name], region))
    return texts


def missing_and_unknown(template: Template, values: Values) -> tuple[list[str], list[str]]:
    declared = dict.fromkeys(template.variables)
    declared.pop(BRAND_NAME, None)
    values_by_name = {**values.texts, **values.lists} if values.lists else values.texts
    not_required = {*values_by_name, *template.optional, *template.fallback}
    missing_names = [name for name in declared if name not in not_required]
    unknown_names = [name for name in values_by_name if name not in declared]
    if values.empty_objects:
        paths = [name.split(".") for name in declared]
        groups = {".".join(parts[:count]) for parts in paths for count in range(1, len(parts) + 1)}
        unknown_names += sorted(values.empty_objects - groups)
    for name, shape in template.shapes.items():
        for index, item in enumerate(values.lists.get(name, ()) if shape.list else ()):
            missing_names += [f"{name}[{index}].{field}" for field in shape.list if field not in item.texts]
            unknown_names += [f"{name}[{index}].{field}" for field in item.texts if field not in shape.list]
    return missing_names, unknown_names


def check_variables(template: Template, values: Values) -> None:
    """Check a caller's values against the declarations, in the order of contract 18.

    Checks types first, then for missing, unknown, too long and unformattable values and too many items.
    """
    if values.lists or template.shapes:
        check_types(template, values)
    for name in template.variables if values.empty_objects else ():
        if name in values.empty_objects:
            raise _object_error(name)
    missing, unknown = missing_and_unknown(template, values)
    if unknown:
        _check_no_objects(template.variables, {*values.texts, *values.empty_objects}, "")
    if missing:
        raise _names_error(MissingVariable, f"The template {template.id} needs these variables", missing)
    if unknown:
        raise _names_error(UnknownVariable, f"The template {template.id} does not declare these variables", unknown)
    texts = (template.subject, template.html, template.text, template.body)
    if template.shapes or "|" in "".join(filter(None, texts)):  # most templates have neither types nor formats
        check_bounds(template, values)


def check_bounds(template: Template, values: Values) -> None:
    """Check that no list has too many items, and that every value fits its maximum length and format."""
    for name, shape in template.shapes.items():
        if shape.list and len(values.lists.get(name, ())) > shape.max:
            raise ListTooLong(
                f"The variable {name!r} has more than {shape.max} items. {ListTooLong.fix}",
                param=f"variables.{name}",
                details={"variables": [name]},
            )
    if invalid := list(dict.fromkeys(_invalid_paths(template, values))):
        raise _names_error(
            InvalidVariable, f"The template {template.id} cannot use these variables as they are", invalid
        )


def check_types(template: Template, values: Values) -> None:
    for name, shape in template.shapes.items():
        is_not_list = name in values.texts or any(path.startswith(f"{name}.") for path in values.texts)
        if shape.list and (is_not_list or name in values.empty_objects):
            raise InvalidRequest(f"The variable {name!r} is a list of objects.", param=f"variables.{name}")
        for index, item in enumerate(values.lists.get(name, ())):
            _check_no_objects(shape.list, item.texts, f"{name}[{index}].")
    for name in values.lists:
        if name in template.variables and not template.shapes.get(name, VariableType()).list:
            raise InvalidRequest(
                f"The variable {name!r} is a list. Send a string, a number or a boolean.", param=f"variables.{name}"
            )


def _check_no_objects(declared: Collection[str], names: Collection[str], path_prefix: str) -> None:
    """Reject an object that was passed for a variable which is declared as a plain value.

    Objects were flattened before: for an object `a` with a member `b`, `names` has `a.b` and not `a`.
    """
    for name in names:
        if name in declared:
            continue
        parts = name.split(".")
        for prefix in (".".join(parts[:count]) for count in range(1, len(parts))):
            if prefix in declared and prefix not in names:
                raise _object_error(path_prefix + prefix)


def _object_error(name: str) -> InvalidRequest:
    return InvalidRequest(
        f"The variable {name!r} is an object. Send a string, a number or a boolean.", param=f"variables.{name}"
    )


def _invalid_paths(template: Template, values: Values) -> Iterator[str]:
    """Yield the names of values that are too long, then of values that their format cannot represent."""
    for name, shape in template.shapes.items():
        if shape.max_length is not None:
            yield from (
                path
                for field in (shape.list or (None,))
                for path, text in _values_of(values, name, field)
                if len(text) > shape.max_length
            )
    for use in formatted_uses(template):
        assert use.format
        path_texts = _values_of(values, use.list, use.name) if use.list else _values_of(values, use.name, None)
        yield from (path for path, text in path_texts if not can_format(use.format, text))


def _values_of(values: Values, name: str, field: str | None) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of a variable, or of a field of each list item, with paths such as `items[0].title`."""
    if field is None:
        if name in values.texts:
            yield name, values.texts[name]
        return
    for index, item in enumerate(values.lists.get(name, ())):
        if field in item.texts:
            yield f"{name}[{index}].{field}", item.texts[field]


def formatted_uses(template: Template) -> Iterator[VariableUse]:
    for part in PARTS:
        source = getattr(template, part)
        if source is not None and "|" in source:
            compiled = compile_source(source, part == "html", item_fields_of(template))
            yield from (use for use in compiled.uses if use.format)


def _names_error(refusal: type[Refusal], message: str, names: Iterable[str]) -> Refusal:
    names = list(names)
    listed = ", ".join(names[:LISTED_NAMES_MAX])
    return refusal(
        f"{message}: {listed}. {refusal.fix}", param="variables", details={"variables": names[:VARIABLES_READ_MAX]}
    )


def check_size(size: int, subject: str, *, param: str, limit: int = BODY_OCTETS_MAX) -> None:
    if size > limit:
        raise BodyTooLong(f"The {subject} {size} bytes, the maximum is {limit}. {BodyTooLong.fix}", param=param)
