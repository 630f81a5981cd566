"""Dashboard form of a carrier, generated from its kind; parsing of submitted values."""

import re
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, replace

from heliograph.domain.setup.carrier_kinds import CARRIER_KINDS, CarrierKind, Control, label_of
from heliograph.domain.setup.setup_file import carrier_fields
from heliograph.domain.validation import Misfit, read

# Options that decide where secrets are sent and whether the connection is encrypted.
ADDRESS = ("host", "port", "tls", "base_url")


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A control of the form."""

    name: str  # as in the setup file; a nested field is `accepted.status`
    label: str
    hint: str
    more: bool  # advanced option, rarely changed
    secret: bool
    control: Control
    required: bool = False
    options: tuple[str, ...] = ()


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed form; empty fields are absent."""

    fields: dict[str, Any]  # as in a setup file
    errors: dict[str, str]  # by input name
    forget: frozenset[str]  # secrets to remove


def inputs(kind: CarrierKind) -> list[Input]:
    """Return the form's controls, with advanced options last."""
    return sorted((_input(one) for one in _flat(kind)), key=lambda one: one.more)


def _input(one: FieldInfo) -> Input:
    label = label_of(one.type)
    assert label, f"{one.encode_name} has no label"
    by_type = _control(one.type)
    return Input(
        name=one.encode_name,
        label=label.text,
        hint=label.hint.replace("{}", str(one.default)),
        more=label.more,
        secret=label.secret,
        control=label.control or ("secret" if label.secret else by_type),
        required=one.required,
        options=get_args(_bare(one.type)) if by_type == "choice" else (),
    )


def _flat(kind: CarrierKind) -> Iterator[FieldInfo]:
    """Yield the carrier's fields; nested structs become optional `parent.child` fields."""
    for field in carrier_fields(kind):
        bare = _bare(field.type)
        if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
            for one in msgspec.structs.fields(bare):
                yield replace(one, encode_name=f"{field.encode_name}.{one.encode_name}", default=None)
        else:
            yield field


def _bare(type_: Any) -> Any:
    bare = get_args(type_)[0] if get_origin(type_) is Annotated else type_
    if get_origin(bare) in (Union, UnionType):
        return _bare(get_args(bare)[0])
    return bare


def _control(type_: Any) -> Control:
    bare = _bare(type_)
    origin = get_origin(bare) or bare
    controls: dict[Any, Control] = {
        Literal: "choice",
        bool: "checkbox",
        int: "number",
        list: "list",
        dict: "lines",
        str: "text",
    }
    return controls[origin]


# -- parsing -----------------------------------------------------------------------------------------------------


def read_form(kind: CarrierKind, form: Mapping[str, str], before: Mapping[str, Any] = {}) -> Filled:
    """Parse a form; `before` holds the options of an existing carrier.

    Secrets left empty are kept, unless they would then be sent to another address.
    """
    types = {one.encode_name: one.type for one in _flat(kind)}
    fields: dict[str, Any] = {}
    errors: dict[str, str] = {}
    forget = {one.name for one in inputs(kind) if one.secret and not one.required and form.get(f"forget-{one.name}")}
    empty: list[Input] = []
    for one in inputs(kind):
        given = form.get(one.name, "").strip() if one.name != "body" else form.get(one.name, "")
        if not given.strip():
            empty.append(one)
            continue
        try:
            value = read(_value(one, given, types[one.name]), types[one.name])
        except (Misfit, ValueError) as error:
            why = error.why if isinstance(error, Misfit) else str(error)
            errors[one.name] = _sentence(why.partition(", got ")[0] if one.secret else why)
        else:
            table, _, part = one.name.rpartition(".")
            (fields.setdefault(table, {}) if table else fields)[part] = value
    moved = "url" in fields or any((fields.get(name) or None) != (before.get(name) or None) for name in ADDRESS)
    for one in empty:
        if one.secret and one.name in before:
            if moved and one.name not in forget:
                errors[one.name] = "Type it again: it would go to another address than before."
        elif one.required:
            errors[one.name] = "Fill this in."
    return Filled(fields=fields, errors=errors, forget=frozenset(forget))


def _value(one: Input, given: str, type_: Any) -> Any:
    """Convert the text of a control to the value in a setup file; raise ValueError with a readable message."""
    if one.control == "checkbox":
        return True
    if one.control == "number":
        return _number(given)
    if one.control == "list":
        words = [word.strip() for word in re.split(r"[,\n]+|\s+(?=\S)", given) if word.strip()]
        return [_number(word) for word in words] if _bare(get_args(_bare(type_))[0]) is int else words
    if one.control == "lines":
        pairs = [line.partition(":") for line in given.splitlines() if line.strip()]
        if any(not colon or not value.strip() for _, colon, value in pairs):
            raise ValueError("write one a line, such as Authorization: Bearer …")
        return {name.strip(): value.strip() for name, _, value in pairs}
    return given


def _number(given: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,15}", given):
        raise ValueError("expected a whole number")
    return int(given)


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "…")) else f"{text}."


# -- display -----------------------------------------------------------------------------------------------------


def shown(kind: CarrierKind, options: Mapping[str, Any]) -> dict[str, str]:
    """Return the carrier's options as form values, without secrets."""
    texts: dict[str, str] = {}
    for one in inputs(kind):
        table, _, part = one.name.rpartition(".")
        value = (options.get(table) or {}).get(part) if table else options.get(part)
        if value is None or one.secret or value is False:
            continue
        texts[one.name] = "yes" if value is True else _text(value)
    return texts


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def kind_of(text: str) -> CarrierKind | None:
    """Return the kind from a URL part such as `email-smtp`; None if unknown."""
    channel, _, kind = text.partition("-")
    return (channel, kind) if (channel, kind) in CARRIER_KINDS else None
