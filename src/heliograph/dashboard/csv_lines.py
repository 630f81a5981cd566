"""Lines of a CSV file, harmless for the spreadsheets that open it."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # spreadsheets run what begins like this


def csv_lines(rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([_harmless(cell) for cell in row] for row in rows)
    return text.getvalue().encode()


def _harmless(cell: str) -> str:
    return f"'{cell}" if cell.startswith(FORMULA) and not _NUMBER.fullmatch(cell) else cell
