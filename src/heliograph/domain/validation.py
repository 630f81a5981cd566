"""Converts untrusted values to typed ones; errors name the path of the invalid part in plain words."""

from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, time
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from heliograph.domain.text import quoted

_TYPE_NAMES: dict[Any, str] = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    NoneType: "null",
    list: "a list",
    dict: "a table",
    date: "a date",
    datetime: "a date and time",
    time: "a time",
}


class InvalidValue(ValueError):
    """A value of the wrong type or format. `path`: the invalid part, as `teams[0].name`; empty for the value itself."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


def parse_with(parse: Callable[[Any], Any]) -> msgspec.Meta:
    """Return field metadata with a custom parser: `parse` converts the value or raises ValueError."""
    return msgspec.Meta(extra={"read": parse})


def convert_value(value: Any, type_: Any) -> Any:
    """Return the value converted to the type.

    Structs become dictionaries without absent fields; other parts are converted by their parsers.
    """
    if isinstance(value, list | dict) and _is_plain(type_):
        with suppress(msgspec.ValidationError):  # msgspec validates many values much faster than this module
            msgspec.convert(value, type_)
            return value
    annotations = [candidate for candidate in getattr(type_, "__metadata__", ()) if isinstance(candidate, msgspec.Meta)]
    annotation = annotations[0] if annotations else msgspec.Meta()
    matching_type = next(
        (candidate for candidate in _member_types(type_) if _json_type(candidate) is type(value)), None
    )
    if isinstance(matching_type, type) and issubclass(matching_type, msgspec.Struct):
        field_types = _check_fields(value, matching_type)
        value = {name: convert_at(name, item, field_types[name]) for name, item in value.items()}
    elif isinstance(value, dict) and matching_type:
        key_type, item_type = get_args(matching_type)
        value = {convert_at(name, name, key_type): convert_at(name, item, item_type) for name, item in value.items()}
    elif value and isinstance(value, list) and matching_type:
        (item_type,), first_invalid = get_args(matching_type), _first_invalid(value, matching_type)
        convert_at(f"[{first_invalid}]", value[first_invalid], item_type)
        value = [convert_at(f"[{i}]", item, item_type) for i, item in enumerate(value)]
    else:
        try:
            msgspec.convert(value, type_)
        except msgspec.ValidationError:
            raise InvalidValue("", _mismatch_text(value, type_, annotation)) from None
    return annotation.extra["read"](value) if annotation.extra else value


def convert_at(path: str, value: Any, type_: Any, convert: Callable[[Any, Any], Any] = convert_value) -> Any:
    try:
        return convert(value, type_)
    except InvalidValue as error:
        raise InvalidValue(
            path + ("." if error.path and error.path[0] != "[" else "") + error.path, error.reason
        ) from None
    except ValueError as error:
        raise InvalidValue(path, str(error)) from None


def _is_plain(type_: Any) -> bool:
    """Return whether the type contains no struct and no custom parser."""
    if isinstance(type_, msgspec.Meta):
        return not type_.extra
    return not (isinstance(type_, type) and issubclass(type_, msgspec.Struct)) and all(map(_is_plain, get_args(type_)))


def _check_fields(value: dict[str, Any], struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the types of the struct's fields; raise InvalidValue if a field is unknown or a required one missing."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    for name in value:
        if name not in fields:
            raise InvalidValue(name, f"is an unknown field. Known fields: {', '.join(fields) or 'none'}")
    for name, field in fields.items():
        if field.required and name not in value:
            raise InvalidValue(name, "is missing")
    return {name: field.type for name, field in fields.items()}


def _first_invalid(items: list[Any], type_: Any) -> int:
    """Return the index of the first invalid item. Binary search: msgspec validates whole slices at once."""
    valid_end, end = 0, len(items)
    while end - valid_end > 1:
        middle = (valid_end + end) // 2
        try:
            msgspec.convert(items[valid_end:middle], type_)
            valid_end = middle
        except msgspec.ValidationError:
            end = middle
    return valid_end


def _mismatch_text(value: Any, type_: Any, annotation: msgspec.Meta) -> str:
    if type(value) is int and annotation.ge is not None:
        return f"expected a whole number from {annotation.ge} to {annotation.le}, got {value}"
    if type(value) is str and annotation.pattern is not None:
        return f"expected {annotation.description}, got {quoted(value)}"
    choices = [
        choice for option in _member_types(type_) if get_origin(option) is Literal for choice in get_args(option)
    ]
    if type(value) is str and choices:
        return f"expected {' or '.join(map(repr, choices))}, got {quoted(value)}"
    expected = " or ".join(_TYPE_NAMES[_json_type(option)] for option in _member_types(type_))
    return f"expected {expected}, got {_TYPE_NAMES.get(type(value), type(value).__name__)}"


def _member_types(type_: Any) -> tuple[Any, ...]:
    """Return the members of a union type, or else the type itself, without annotations."""
    bare = get_args(type_)[0] if get_origin(type_) is Annotated else type_
    if get_origin(bare) not in (Union, UnionType):
        return (bare,)
    return tuple(option for member in get_args(bare) for option in _member_types(member))


def _json_type(type_: Any) -> Any:
    """Return the type that values of this type have in JSON."""
    bare = get_origin(type_) or type_
    if bare is Literal:
        return str
    return dict if isinstance(bare, type) and issubclass(bare, msgspec.Struct) else bare
