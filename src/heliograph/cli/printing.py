"""Prints command results as text or as JSON."""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
import msgspec

T = TypeVar("T")
# characters with which a text could control the terminal
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def print_result(as_json: bool, record: Any, text: str, *, indented: bool = False) -> None:
    """Print `record` as JSON, or `text` with control characters escaped; an empty text prints nothing."""
    if as_json:
        encoded = msgspec.json.encode(record)
        click.echo(msgspec.json.format(encoded, indent=2) if indented else encoded)
    elif text:
        click.echo(_CONTROL_CHARACTERS.sub(lambda match: ascii(match[0])[1:-1], text))


def print_list(
    as_json: bool,
    records: Sequence[T],
    to_line: Callable[[T], str],
    *,
    fields: Callable[[T], Any] = lambda record: record,
    empty_text: str = "",
    indented: bool = False,
) -> None:
    """Print a list with one line per record, or as JSON like a list of the API."""
    data = [fields(record) for record in records] if as_json else []
    text = "" if as_json else "\n".join(map(to_line, records)) or empty_text
    print_result(as_json, {"object": "list", "data": data}, text, indented=indented)
