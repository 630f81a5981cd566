"""CSV file of addresses to suppress: `email[,reason]` per line, with or without a header.

Other services use other reasons; unknown reasons are imported as `manual`.
"""

import csv
import re
from collections.abc import Iterator
from typing import TextIO

import msgspec

from heliograph.domain.delivery.magic_recipients import is_magic_email
from heliograph.domain.mail.address import Address, parse_address

ROWS_MAX = 100_000
LINE_MAX = 1_000_000  # characters
REASONS = ("bounce", "complaint", "manual")
DEFAULT_REASON = "manual"
MAGIC_ADDRESS_ERROR = "is a test address of the simulator, which can't be suppressed"
_ESCAPED_FORMULA = re.compile("'[=+\\-@＝＋－＠]")
HEADERS = ("email", "e-mail", "email address", "address", "recipient")


class UnreadableFile(Exception):
    """The whole file is invalid; the exception's text says why."""


class SuppressionFileRow(msgspec.Struct, frozen=True, kw_only=True):
    number: int  # line number in the file, from 1
    text: str  # address as written
    address: Address | None = None
    reason: str = DEFAULT_REASON
    error: str = ""  # why the line is skipped


def parse_suppression_file(file: bytes | TextIO) -> list[SuppressionFileRow]:
    """Parse addresses line by line. Empty lines are skipped, as are further columns, which our own exports have."""
    reader = csv.reader(_decode_lines(file), strict=False)
    row_by_address: dict[str, int] = {}
    rows: list[SuppressionFileRow] = []
    try:
        for cells in reader:
            row = _parse_cells(reader.line_num, [cell.strip() for cell in cells], row_by_address)
            if row is not None:
                rows.append(row)
            if len(rows) > ROWS_MAX:
                raise UnreadableFile(f"The file has more than {ROWS_MAX:,} lines. Import it in parts.")
    except UnicodeDecodeError:
        raise UnreadableFile("The file is not UTF-8 text. Save it as CSV in UTF-8 and try again.") from None
    except csv.Error as error:
        raise UnreadableFile(f"Line {reader.line_num} can't be read: {error}.") from None
    if not rows:
        raise UnreadableFile("The file contains no addresses.")
    return rows


def _decode_lines(file: bytes | TextIO) -> Iterator[str]:
    if isinstance(file, bytes):
        yield from file.decode("utf-8-sig").splitlines()
        return
    while line := file.readline(LINE_MAX + 1):
        if len(line) > LINE_MAX:
            raise UnreadableFile(f"A line has more than {LINE_MAX:,} characters. Save the file as CSV and try again.")
        yield line


def _parse_cells(number: int, cells: list[str], row_by_address: dict[str, int]) -> SuppressionFileRow | None:
    if not any(cells) or (number == 1 and cells[0].lower() in HEADERS):
        return None
    # Our export prefixes cells that a spreadsheet would treat as a formula; no address starts with such a prefix.
    email = cells[0][1:] if _ESCAPED_FORMULA.match(cells[0]) else cells[0]
    return parse_row(number, email, cells[1] if len(cells) > 1 else "", row_by_address)


def parse_row(number: int, email: str, reason_text: str, row_by_address: dict[str, int]) -> SuppressionFileRow:
    """Parse one line; `row_by_address` maps addresses of the previous lines to their line numbers."""
    address = parse_address(email)
    if address is None:
        return SuppressionFileRow(number=number, text=email, error="not an email address")
    if is_magic_email(address.normal):
        return SuppressionFileRow(number=number, text=email, error=MAGIC_ADDRESS_ERROR)
    reason = reason_text.lower() if reason_text.lower() in REASONS else DEFAULT_REASON
    if address.normal in row_by_address:
        return SuppressionFileRow(number=number, text=email, error=f"the same as line {row_by_address[address.normal]}")
    row_by_address[address.normal] = number
    return SuppressionFileRow(number=number, text=email, address=address, reason=reason)
