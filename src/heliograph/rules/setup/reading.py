"""Reading tables that people write: each reader turns a value into what it means, or says why it cannot.

A reader raises ValueError for its own value; the tables and lists around it add the key path.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from heliograph.rules.text import CONTROLS, quoted

Reader = Callable[[Any], Any]

LINE_MAX = 200  # characters of a name
NUMBER_MAX = 2**53 - 1  # what every JSON reader keeps exact

_NAMES = {str: "a string", bool: "true or false", int: "a whole number", list: "a list", dict: "a table"}


class Misread(ValueError):
    """A value deeper inside is wrong; `path` says where, `why` what."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


def read_at(step: str, reader: Reader, value: Any) -> Any:
    try:
        return reader(value)
    except Misread as error:
        raise Misread(step + ("" if error.path.startswith("[") else ".") + error.path, error.why) from None
    except ValueError as error:
        raise Misread(step, str(error)) from None


def typed(value: Any, kind: type) -> Any:
    # `type`, not isinstance: a TOML `true` is no number.
    if type(value) is not kind:
        raise ValueError(f"expected {_NAMES[kind]}, got {_NAMES.get(type(value), type(value).__name__)}")
    return value


def flag(value: Any) -> bool:
    return bool(typed(value, bool))


def text(value: Any) -> str:
    return str(typed(value, str))


def line(value: Any) -> str:
    """A name that people see: one line, nothing invisible."""
    given = text(value)
    if not given.strip() or len(given) > LINE_MAX or CONTROLS.search(given):
        raise ValueError(
            f"expected one line of 1 to {LINE_MAX} characters without control or bidi characters, got {quoted(given)}"
        )
    return given


def number(least: int = 0, most: int = NUMBER_MAX) -> Reader:
    def read(value: Any) -> int:
        given = int(typed(value, int))
        if not least <= given <= most:
            raise ValueError(f"expected a whole number from {least} to {most}, got {given}")
        return given

    return read


def matching(pattern: str, what: str) -> Reader:
    compiled = re.compile(pattern)

    def read(value: Any) -> str:
        given = text(value)
        if not compiled.fullmatch(given):
            raise ValueError(f"expected {what}, got {quoted(given)}")
        return given

    return read


def one_of(*options: str) -> Reader:
    def read(value: Any) -> str:
        given = text(value)
        if given not in options:
            raise ValueError(f"expected {' or '.join(map(repr, options))}, got {quoted(given)}")
        return given

    return read


def list_of(reader: Reader) -> Reader:
    def read(value: Any) -> list[Any]:
        return [read_at(f"[{i}]", reader, item) for i, item in enumerate(typed(value, list))]

    return read


def map_of(key: Reader, reader: Reader) -> Reader:
    def read(value: Any) -> dict[str, Any]:
        return {read_at(name, key, name): read_at(name, reader, item) for name, item in typed(value, dict).items()}

    return read


def table(fields: Mapping[str, Reader], *needed: str) -> Reader:
    """Absent fields stay absent; unknown ones are refused."""

    def read(value: Any) -> dict[str, Any]:
        given = typed(value, dict)
        for name in given:
            if name not in fields:
                raise Misread(name, f"is not known here. Known: {', '.join(fields)}")
        for name in needed:
            if name not in given:
                raise Misread(name, "is missing")
        return {name: read_at(name, fields[name], item) for name, item in given.items()}

    return read
