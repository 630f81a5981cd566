"""Writes CSV rows that spreadsheets do not evaluate as formulas (formula injection)."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

_PLAIN_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
# Spreadsheets evaluate cells that begin with these signs, also after invisible characters and in full-width form. With
# another separator, a spreadsheet treats our quotes as text, so a cell may begin after any of these separators.
_INVISIBLE_CHARACTERS = (
    r"\"\x00-\x08\x0b\x0c\x0e-\x20\x7f-\xa0\xad\u034f\u115f\u1160\u1680\u180e"
    r"\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164\ufeff\uffa0"
)
_SEPARATORS = r";,|%\t\r\n"
_FORMULA_SIGNS = r"[=+\-@＝＋－＠]"
_FORMULA_START = re.compile(
    rf"\A(?=[;\t\r\n]|[{_INVISIBLE_CHARACTERS}{_SEPARATORS}]*+{_FORMULA_SIGNS})|(?<=[{_SEPARATORS}])(?=[{_INVISIBLE_CHARACTERS}]*+{_FORMULA_SIGNS})"
)


def encode_csv(rows: Iterable[Sequence[str]]) -> bytes:
    """Encode rows as CSV, with an apostrophe before cells that a spreadsheet would evaluate as formulas."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([_escape_formula(cell) for cell in row] for row in rows)
    return text.getvalue().encode()


def _escape_formula(cell: str) -> str:
    return cell if _PLAIN_NUMBER.fullmatch(cell) else _FORMULA_START.sub("'", cell)
