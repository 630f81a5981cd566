"""Cells, schemas with one installation each: names, database URLs, public URLs and host names (ADR 0046, 0047)."""

import base64
import re
from urllib.parse import parse_qsl, urlencode

# No `_` at the end: the name, with `-` instead of `_`, is a label of a host name.
CELL_NAME = re.compile(r"[a-z](?:[a-z0-9_]{0,61}[a-z0-9])?")
PLACEHOLDER = "{cell}"  # stands for the name of a cell in a public URL


def is_cell_name(text: str) -> bool:
    return bool(CELL_NAME.fullmatch(text)) and not text.startswith("pg_")


def cell_url(url: str, cell: str) -> str:
    """Return the database URL of a cell: `url` with the cell's search_path."""
    base, _, query = url.partition("?")
    params = [(name, value) for name, value in parse_qsl(query) if name != "search_path"]
    return f"{base}?{urlencode([*params, ('search_path', cell)], safe='/')}"


def cell_public_url(pattern: str, cell: str) -> str:
    """Return the public URL of a cell: the pattern with the cell's host label in place of `{cell}`."""
    return pattern.replace(PLACEHOLDER, cell.replace("_", "-"))


def basic_pattern(cell: str) -> str:
    """Return a regular expression for an `Authorization: Basic` header whose password is a key of the cell.

    It is for proxies that cannot decode base64. The start of the password is encoded in one of three ways, depending on
    the length of the user name.
    """
    start, encodings = f":hk_{cell}_".encode(), []
    for shift in range(3):
        encoded = base64.b64encode(bytes(shift) + start + bytes(2)).decode()
        partial = (shift * 8 + 5) // 6  # number of leading base64 characters that also encode bits of the user name
        complete = (shift + len(start)) * 8 // 6  # base64 characters after this many also encode what follows `start`
        skipped = f"[A-Za-z0-9+/]{{{partial}}}" if partial else ""
        encodings.append(skipped + re.escape(encoded[partial:complete]))
    return rf"(?i:basic) +(?:[A-Za-z0-9+/]{{4}})*(?:{'|'.join(encodings)})"
