"""Lines of a CSV file, harmless for the spreadsheets that open it."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
# Spreadsheets run what begins so, also behind spaces, separators and line feeds, and in full width.
_FORMULA = re.compile(r"[;\t\r\n]|[\s;]*+[=+\-@＝＋－＠]")


def csv_lines(rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([_harmless(cell) for cell in row] for row in rows)
    return text.getvalue().encode()


def _harmless(cell: str) -> str:
    return f"'{cell}" if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell) else cell
