"""Converts untrusted values to typed ones; errors name the path of the invalid part in plain words."""

from collections.abc import Callable
from contextlib import suppress
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from heliograph.domain.text import quoted

_NAMES: dict[Any, str] = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    NoneType: "null",
    list: "a list",
    dict: "a table",
}


class Misfit(ValueError):
    """A value of the wrong type or format. `path` is the part, such as `teams[0].name`; empty for the value itself."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}" if path else why)
        self.path = path
        self.why = why


def form(read: Callable[[Any], Any]) -> msgspec.Meta:
    """Return field metadata with a custom parser: `read` converts the value or raises ValueError."""
    return msgspec.Meta(extra={"read": read})


def read(value: Any, kind: Any) -> Any:
    """Return the converted value: structs as dictionaries without absent fields, other parts converted by their
    parsers.
    """
    if isinstance(value, list | dict) and _is_plain(kind):
        with suppress(msgspec.ValidationError):  # msgspec validates many values much faster than this module
            msgspec.convert(value, kind)
            return value
    metas = [one for one in getattr(kind, "__metadata__", ()) if isinstance(one, msgspec.Meta)]
    meta = metas[0] if metas else msgspec.Meta()
    inner = next((one for one in _options(kind) if _base(one) is type(value)), None)
    if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
        kinds = _checked_fields(value, inner)
        value = {name: read_at(name, item, kinds[name]) for name, item in value.items()}
    elif isinstance(value, dict) and inner:
        key, part = get_args(inner)
        value = {read_at(name, name, key): read_at(name, item, part) for name, item in value.items()}
    elif value and isinstance(value, list) and inner:
        (part,), misfit = get_args(inner), _first_misfit(value, inner)
        read_at(f"[{misfit}]", value[misfit], part)
        value = [read_at(f"[{i}]", item, part) for i, item in enumerate(value)]
    else:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            raise Misfit("", _mismatch(value, kind, meta)) from None
    return meta.extra["read"](value) if meta.extra else value


def read_at(step: str, value: Any, kind: Any, by: Callable[[Any, Any], Any] = read) -> Any:
    try:
        return by(value, kind)
    except Misfit as error:
        raise Misfit(step + ("." if error.path and error.path[0] != "[" else "") + error.path, error.why) from None
    except ValueError as error:
        raise Misfit(step, str(error)) from None


def _is_plain(kind: Any) -> bool:
    """Return whether the type contains no struct and no custom parser."""
    if isinstance(kind, msgspec.Meta):
        return not kind.extra
    return not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)) and all(map(_is_plain, get_args(kind)))


def _checked_fields(value: dict[str, Any], struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the types of the struct's fields; raise if a required field is missing or an unknown field is present."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    for name in value:
        if name not in fields:
            raise Misfit(name, f"is not known here. Known: {', '.join(fields) or 'no fields'}")
    for name, field in fields.items():
        if field.required and name not in value:
            raise Misfit(name, "is missing")
    return {name: field.type for name, field in fields.items()}


def _first_misfit(items: list[Any], kind: Any) -> int:
    """Return the index of the first invalid item by binary search, so that msgspec validates most of a long list."""
    fit, end = 0, len(items)
    while end - fit > 1:
        middle = (fit + end) // 2
        try:
            msgspec.convert(items[fit:middle], kind)
            fit = middle
        except msgspec.ValidationError:
            end = middle
    return fit


def _mismatch(value: Any, kind: Any, meta: msgspec.Meta) -> str:
    if type(value) is int and meta.ge is not None:
        return f"expected a whole number from {meta.ge} to {meta.le}, got {value}"
    if type(value) is str and meta.pattern is not None:
        return f"expected {meta.description}, got {quoted(value)}"
    words = [word for one in _options(kind) if get_origin(one) is Literal for word in get_args(one)]
    if type(value) is str and words:
        return f"expected {' or '.join(map(repr, words))}, got {quoted(value)}"
    wanted = " or ".join(_NAMES[_base(one)] for one in _options(kind))
    return f"expected {wanted}, got {_NAMES.get(type(value), type(value).__name__)}"


def _options(kind: Any) -> tuple[Any, ...]:
    """Return the types that a value may have, without annotations."""
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if get_origin(bare) not in (Union, UnionType):
        return (bare,)
    return tuple(option for one in get_args(bare) for option in _options(one))


def _base(kind: Any) -> Any:
    """Return the JSON type of values of this kind."""
    bare = get_origin(kind) or kind
    if bare is Literal:
        return str
    return dict if isinstance(bare, type) and issubclass(bare, msgspec.Struct) else bare
