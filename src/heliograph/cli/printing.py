"""What commands answer: each thing once, for people as text and for programs as JSON."""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
import msgspec

T = TypeVar("T")
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # with these a name or a file would steer a terminal


def tell(as_json: bool, record: Any, text: str, *, indented: bool = False) -> None:
    """Tell one answer; a text that is empty is no line."""
    if as_json:
        encoded = msgspec.json.encode(record)
        click.echo(msgspec.json.format(encoded, indent=2) if indented else encoded)
    elif text:
        click.echo(_STEERING.sub(lambda found: ascii(found[0])[1:-1], text))


def show(
    as_json: bool,
    records: Sequence[T],
    line: Callable[[T], str],
    *,
    fields: Callable[[T], Any] = lambda record: record,
    none: str = "",
    indented: bool = False,
) -> None:
    """Show a list: a line of columns for each record, or as JSON the form that lists of the API have.

    `none` is the text of an empty list.
    """
    found = [fields(record) for record in records] if as_json else []
    text = "" if as_json else "\n".join(map(line, records)) or none
    tell(as_json, {"object": "list", "data": found}, text, indented=indented)
