"""Cells: their names, and the database URL, public URL and host name of each (ADR 0046, 0047)."""

import re
from urllib.parse import parse_qsl, urlencode

# Not at the end: the name, with `-` instead of `_`, is a label of a host name.
CELL_NAME = re.compile(r"[a-z](?:[a-z0-9_]{0,61}[a-z0-9])?")
PLACEHOLDER = "{cell}"  # in a public URL


def is_cell_name(text: str) -> bool:
    return bool(CELL_NAME.fullmatch(text)) and not text.startswith("pg_")


def cell_url(url: str, cell: str) -> str:
    """Return the database URL of a cell: the given one with the cell's search_path."""
    base, _, query = url.partition("?")
    params = [(name, value) for name, value in parse_qsl(query) if name != "search_path"]
    return f"{base}?{urlencode([*params, ('search_path', cell)], safe='/')}"


def cell_public_url(pattern: str, cell: str) -> str:
    """Return the public URL of a cell: the pattern with the cell's host label in place of `{cell}`."""
    return pattern.replace(PLACEHOLDER, cell.replace("_", "-"))
