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

LINES_MAX = 100_000
LINE_MAX = 1_000_000  # characters
REASONS = ("bounce", "complaint", "manual")
DEFAULT = "manual"
MAGIC = "is a magic address of the simulator, which is never suppressed"
_MARKED = re.compile("'[=+\\-@＝＋－＠]")
HEADERS = ("email", "e-mail", "email address", "address", "recipient")


class Unreadable(Exception):
    """The whole file is invalid; the message says why."""


class ReadLine(msgspec.Struct, frozen=True, kw_only=True):
    number: int  # line number in the file, from 1
    text: str  # address as written
    address: Address | None = None
    reason: str = DEFAULT
    wrong: str = ""  # why the line is skipped


def read_lines(file: bytes | TextIO) -> list[ReadLine]:
    """Read addresses line by line. Empty lines are skipped; further columns, as of our own export, are ignored."""
    reader = csv.reader(_written_lines(file), strict=False)
    seen: dict[str, int] = {}
    lines: list[ReadLine] = []
    try:
        for cells in reader:
            line = _read(reader.line_num, [cell.strip() for cell in cells], seen)
            if line is not None:
                lines.append(line)
            if len(lines) > LINES_MAX:
                raise Unreadable(f"The file has more than {LINES_MAX:,} lines. Import it in parts.")
    except UnicodeDecodeError:
        raise Unreadable("The file is not UTF-8 text. Save it as CSV in UTF-8 and try again.") from None
    except csv.Error as error:
        raise Unreadable(f"Line {reader.line_num} cannot be read: {error}.") from None
    if not lines:
        raise Unreadable("The file has no addresses.")
    return lines


def _written_lines(file: bytes | TextIO) -> Iterator[str]:
    if isinstance(file, bytes):
        yield from file.decode("utf-8-sig").splitlines()
        return
    while line := file.readline(LINE_MAX + 1):
        if len(line) > LINE_MAX:
            raise Unreadable(f"A line has more than {LINE_MAX:,} characters. Save the file as CSV and try again.")
        yield line


def _read(number: int, cells: list[str], seen: dict[str, int]) -> ReadLine | None:
    if not any(cells) or (number == 1 and cells[0].lower() in HEADERS):
        return None
    # Our export prefixes cells that a spreadsheet would treat as a formula; no address starts with such a prefix.
    written = cells[0][1:] if _MARKED.match(cells[0]) else cells[0]
    return to_line(number, written, cells[1] if len(cells) > 1 else "", seen)


def to_line(number: int, email: str, given: str, seen: dict[str, int]) -> ReadLine:
    """Parse one line; `seen` maps the addresses of the previous lines to their line numbers."""
    address = parse_address(email)
    if address is None:
        return ReadLine(number=number, text=email, wrong="not an email address")
    if is_magic_email(address.normal):
        return ReadLine(number=number, text=email, wrong=MAGIC)
    reason = given.lower() if given.lower() in REASONS else DEFAULT
    if address.normal in seen:
        return ReadLine(number=number, text=email, wrong=f"the same as line {seen[address.normal]}")
    seen[address.normal] = number
    return ReadLine(number=number, text=email, address=address, reason=reason)
