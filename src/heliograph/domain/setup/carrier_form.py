"""Dashboard form of a carrier, generated from its kind, and parser of the submitted values."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, replace

from heliograph.domain.setup.carrier_kinds import CARRIER_KINDS, CarrierKind, Control, label_of
from heliograph.domain.setup.setup_file import carrier_fields, dates_as_text
from heliograph.domain.validation import InvalidValue, convert_value

# Options that decide where secrets are sent and whether the connection is encrypted.
DESTINATION_OPTIONS = ("host", "port", "tls", "base_url")
_CONTROL_BY_TYPE: dict[Any, Control] = {
    Literal: "choice",
    bool: "checkbox",
    int: "number",
    list: "list",
    dict: "lines",
    str: "text",
}


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A control of the carrier form."""

    name: str  # as in the setup file; a nested field is `accepted.status`
    label: str
    hint: str
    advanced: bool  # advanced option, rarely changed
    secret: bool
    control: Control
    required: bool = False
    options: tuple[str, ...] = ()


class ParsedForm(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed carrier form; fields left empty are absent."""

    fields: dict[str, Any]  # as in a setup file
    errors: dict[str, str]  # by input name
    removed_secrets: frozenset[str]  # secrets to remove


def form_inputs(kind: CarrierKind) -> list[Input]:
    """Return the form's controls, with advanced options last."""
    return sorted((_build_input(item) for item in _flatten_fields(kind)), key=lambda item: item.advanced)


def _build_input(option: FieldInfo) -> Input:
    label = label_of(option.type)
    assert label, f"{option.encode_name} has no label"
    by_type = _control_for(option.type)
    return Input(
        name=option.encode_name,
        label=label.text,
        hint=label.hint.replace("{}", str(option.default)),
        advanced=label.advanced,
        secret=label.secret,
        control=label.control or ("secret" if label.secret else by_type),
        required=option.required,
        options=get_args(_unwrap_type(option.type)) if by_type == "choice" else (),
    )


def _flatten_fields(kind: CarrierKind) -> Iterator[FieldInfo]:
    """Yield the carrier kind's fields; nested structs become optional fields such as `parent.child`."""
    for field in carrier_fields(kind):
        bare = _unwrap_type(field.type)
        if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
            for nested in msgspec.structs.fields(bare):
                yield replace(nested, encode_name=f"{field.encode_name}.{nested.encode_name}", default=None)
        else:
            yield field


def _unwrap_type(type_: Any) -> Any:
    bare = get_args(type_)[0] if get_origin(type_) is Annotated else type_
    if get_origin(bare) in (Union, UnionType):
        return _unwrap_type(get_args(bare)[0])
    return bare


def _control_for(type_: Any) -> Control:
    bare = _unwrap_type(type_)
    return _CONTROL_BY_TYPE[get_origin(bare) or bare]


# -- parsing -----------------------------------------------------------------------------------------------------


def parse_form(kind: CarrierKind, form: Mapping[str, str], current_options: Mapping[str, Any] = {}) -> ParsedForm:
    """Parse a submitted form. `current_options`: options of the carrier that is edited.

    Secrets left empty keep their value, unless they would then be sent to another address.
    """
    types = {control.encode_name: control.type for control in _flatten_fields(kind)}
    fields: dict[str, Any] = {}
    errors: dict[str, str] = {}
    removed_secrets = {
        control.name
        for control in form_inputs(kind)
        if control.secret and not control.required and form.get(f"forget-{control.name}")
    }
    empty: list[Input] = []
    for control in form_inputs(kind):
        text = form.get(control.name, "").strip() if control.name != "body" else form.get(control.name, "")
        if not text.strip():
            empty.append(control)
            continue
        try:
            value = convert_value(_parse_value(control, text, types[control.name]), types[control.name])
        except (InvalidValue, ValueError) as error:
            reason = error.reason if isinstance(error, InvalidValue) else str(error)
            errors[control.name] = _sentence(reason.partition(", got ")[0] if control.secret else reason)
        else:
            table, _, part = control.name.rpartition(".")
            (fields.setdefault(table, {}) if table else fields)[part] = value
    destination_changed = "url" in fields or any(
        (fields.get(name) or None) != (current_options.get(name) or None) for name in DESTINATION_OPTIONS
    )
    for control in empty:
        if control.secret and control.name in current_options:
            if destination_changed and control.name not in removed_secrets:
                errors[control.name] = "Enter it again, because the server address has changed."
        elif control.required:
            errors[control.name] = "Required."
    return ParsedForm(fields=fields, errors=errors, removed_secrets=frozenset(removed_secrets))


def _parse_value(control: Input, text: str, type_: Any) -> Any:
    """Convert the text of a control to the value in a setup file; raise ValueError with a text for people."""
    if control.control == "checkbox":
        return True
    if control.control == "number":
        return _parse_number(text)
    if control.control == "toml" or (control.control == "list" and text.startswith("[")):
        return _parse_toml(text, is_list=control.control == "list")
    if control.control == "list":
        words = [word.strip() for word in re.split(r"[,\n]+|\s+(?=\S)", text) if word.strip()]
        return (
            [_parse_number(word) for word in words] if _unwrap_type(get_args(_unwrap_type(type_))[0]) is int else words
        )
    if control.control == "lines":
        pairs = [line.partition(":") for line in text.splitlines() if line.strip()]
        if any(not colon or not value.strip() for _, colon, value in pairs):
            raise ValueError("enter one per line, such as Authorization: Bearer …")
        return {name.strip(): value.strip() for name, _, value in pairs}
    return text


def _parse_toml(text: str, *, is_list: bool) -> Any:
    """Parse the value of a form field that is written in TOML, as in a setup file."""
    try:
        content = tomllib.loads(f"value = {text}" if is_list else text)
    except ValueError as error:
        raise ValueError(f"expected TOML as in a setup file: {error}") from None
    return dates_as_text(content["value"] if is_list else content)


def _parse_number(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,15}", text):
        raise ValueError("expected a whole number")
    return int(text)


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "…")) else f"{text}."


# -- display -----------------------------------------------------------------------------------------------------


def form_values(kind: CarrierKind, options: Mapping[str, Any]) -> dict[str, str]:
    """Return the carrier's options as form values, without secrets."""
    texts: dict[str, str] = {}
    for control in form_inputs(kind):
        table, _, part = control.name.rpartition(".")
        value = (options.get(table) or {}).get(part) if table else options.get(part)
        if value is None or control.secret or value is False:
            continue
        texts[control.name] = "yes" if value is True else _format_value(value)
    return texts


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(_toml_pairs(value))
    if isinstance(value, list | tuple):
        has_tables = any(isinstance(item, dict) for item in value)
        return _format_toml(value) if has_tables else ", ".join(map(str, value))
    return str(value)


def _format_toml(value: Any) -> str:
    """Return a value as inline TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(_toml_pairs(value)) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format_toml, value))}]"
    return msgspec.json.encode(value).decode()  # TOML writes strings and numbers like JSON


def _toml_pairs(table: Mapping[str, Any]) -> Iterator[str]:
    for name, item in table.items():
        key = name if re.fullmatch("[A-Za-z0-9_-]+", name) else _format_toml(name)
        yield f"{key} = {_format_toml(item)}"


def parse_kind(text: str) -> CarrierKind | None:
    """Return the kind from a URL part such as `email-smtp`; None if unknown."""
    channel, _, kind = text.partition("-")
    return (channel, kind) if (channel, kind) in CARRIER_KINDS else None
