"""Parses the records of an export of any service: CSV, a JSON response of its API, or JSON lines."""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TextIO, TypeVar

import msgspec
from msgspec.structs import replace

from heliograph.domain.limits import MIB, REPLY_TO_MAX
from heliograph.domain.mail.address import parse_name_addr
from heliograph.domain.mail.suppression_file import LINES_MAX, Unreadable
from heliograph.domain.setup.records import Channel, Template
from heliograph.domain.text import quoted
from heliograph.templates.policy.check import EXAMPLE_MAX, VARIABLES_MAX
from heliograph.templates.policy.import_syntax import carry
from heliograph.templates.policy.placeholders import NAME_MAX
from heliograph.templates.policy.render import CONTROL
from heliograph.templates.policy.template_edit import Edited, edit_template

T = TypeVar("T")
TEXT_MAX = 32 * MIB  # characters of a JSON document, which is read whole, or of one line
Row = Mapping[str, Any]  # names in lower case, with _ for spaces


class ExportedAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A suppressed address."""

    email: str
    reason: str = ""


class ExportedDomain(msgspec.Struct, frozen=True, kw_only=True):
    name: str


class ExportedTemplate(msgspec.Struct, frozen=True, kw_only=True):
    id: str  # id at the other service
    name: str
    channel: Channel = "email"
    words: Mapping[str, Any]  # content by our field names
    own_id: str = ""  # id by which existing sends refer to the template here
    kept: Mapping[str, Any] = {}  # record fields that a setup file does not have
    notes: Sequence[str] = ()  # differences in meaning, by part and line


class ExportedLayout(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    own_id: str  # id by which templates refer to the layout
    words: Mapping[str, Any]


def edit_exported(given: ExportedTemplate, id_: str, team: str) -> Edited:
    """Return the template converted to ours, with its errors."""
    base = Template(id=id_, team=team, channel=given.channel, name=given.name)
    return with_kept(edit_template(base, {"name": given.name, "variables": [], **given.words}), given.kept)


def with_kept(edited: Edited, kept: Mapping[str, Any]) -> Edited:
    """Return the template with additional fields of other services, and errors for values that a send cannot use."""
    new, errors = replace(edited.template, **kept), dict(edited.errors)
    if len(new.alias) > NAME_MAX or CONTROL.search(new.alias):
        errors["alias"] = f"It is one line of at most {NAME_MAX} characters."
    if new.sender and not parse_name_addr(new.sender):
        errors["sender"] = f"{quoted(new.sender)} is no address: write one such as Acme <hello@acme.test>."
    if bad := next((one for one in new.reply_to if not parse_name_addr(one)), None):
        errors["reply_to"] = f"{quoted(bad)} is no address: write one such as help@acme.test."
    if len(new.reply_to) > REPLY_TO_MAX:
        errors["reply_to"] = f"There are {len(new.reply_to)} addresses: {REPLY_TO_MAX} is the most."
    if len(new.fallback) > VARIABLES_MAX or any(len(str(value)) > EXAMPLE_MAX for value in new.fallback.values()):
        errors["variables"] = (
            f"A fallback has at most {EXAMPLE_MAX:,} characters, and there are {VARIABLES_MAX} at most."
        )
    return Edited(new, errors, edited.added)


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    why: str
    notes: Sequence[str] = ()  # all reasons, by part and line


Exported = ExportedAddress | ExportedDomain | ExportedTemplate | ExportedLayout | LeftOut
ReadRow = Callable[[Row], Exported]  # reader of one service


class ExportedWords(msgspec.Struct, frozen=True):
    """Parts of a template, converted to our syntax."""

    given: dict[str, Any]
    fallback: dict[str, str]
    left: list[str]
    changed: list[str]


def items_of(value: Any) -> list[Any]:
    """Return `value` if it is a list, otherwise an empty list."""
    return value if isinstance(value, list) else []


def read_words(parts: Mapping[str, str]) -> ExportedWords:
    """Convert each part to our syntax; variables in conditions and lists become optional, as in the other service."""
    found = {part: carry(text) for part, text in parts.items()}
    names = sorted({name for one in found.values() for name in one.optional})
    return ExportedWords(
        {part: one.text for part, one in found.items()} | ({"optional": names} if names else {}),
        {name: text for one in found.values() for name, text in one.fallback.items()},
        [f"{part}, {told}" for part, one in found.items() for told in one.left],
        [f"{part}, {told}" for part, one in found.items() for told in one.changed],
    )


def left_words(name: str, words: ExportedWords) -> LeftOut:
    return LeftOut(text=name, why=words.left[0], notes=words.left)


def read_export(text: TextIO, read: Callable[[Row], T]) -> Iterator[tuple[int, T]]:
    """Yield each record with its line in the file, or its place in a JSON list, from 1.

    CSV and JSON lines are read line by line; a JSON document is read whole, up to TEXT_MAX.
    """
    count = 0
    try:
        for number, row in _rows(text):
            if any(row.values()):
                count += 1
                if count > LINES_MAX:
                    raise Unreadable(f"The file has more than {LINES_MAX:,} records. Import it in parts.")
                yield number, read(row)
    except UnicodeDecodeError:
        raise Unreadable("The file is not UTF-8 text. Export it again as CSV or JSON in UTF-8.") from None
    if not count:
        raise Unreadable("The file has no records.")


def _rows(text: TextIO) -> Iterator[tuple[int, Row]]:
    lines = enumerate(_lines(text), 1)
    start, first = next((one for one in lines if one[1].strip()), (1, ""))
    if not first.lstrip().startswith(("{", "[")):
        yield from _cells(chain([first], (line for _, line in lines)), start - 1)
        return
    for number, record in enumerate(_records(start, first, lines, text), 1):
        if not isinstance(record, dict):
            raise Unreadable(f"Record {number} is not an object.")
        yield number, {name.lower(): value for name, value in record.items()}


def _lines(text: TextIO) -> Iterator[str]:
    while line := text.readline(TEXT_MAX + 1):
        _check_length(line)
        yield line


def _check_length(text: str) -> None:
    if len(text) > TEXT_MAX:
        raise Unreadable(
            f"A JSON document or a line has more than {TEXT_MAX:,} characters. Export JSON lines or CSV, or in parts."
        )


def _records(start: int, first: str, lines: Iterator[tuple[int, str]], text: TextIO) -> Iterator[Any]:
    """Yield the records of a JSON document, or those of JSON lines where the first line is JSON and others follow."""
    second = next((one for one in lines if one[1].strip()), None) if _is_json(first) else None
    if second:
        following = chain([(start, first), second], lines)
        yield from (_decoded(number, line) for number, line in following if line.strip())
        return
    document = first + text.read(TEXT_MAX + 1)
    _check_length(document)
    try:
        yield from _listed(msgspec.json.decode(document))
    except (msgspec.DecodeError, RecursionError):
        numbered = enumerate(document.splitlines(), start)
        yield from (_decoded(number, line) for number, line in numbered if line.strip())


def _is_json(line: str) -> bool:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _listed(value: Any) -> list[Any]:
    """Return the records of an API response, which may hold them in one of its fields."""
    if isinstance(value, dict):
        lists = [inner for inner in value.values() if isinstance(inner, list) and inner and isinstance(inner[0], dict)]
        is_list = value.get("object") == "list" or "html" not in value
        return lists[0] if len(lists) == 1 and is_list and "name" not in value else [value]
    return value if isinstance(value, list) else [value]


def _decoded(number: int, line: str) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        raise Unreadable(f"Line {number} is not JSON.") from None


def _cells(lines: Iterable[str], skipped: int) -> Iterator[tuple[int, Row]]:
    """Yield the rows of CSV; `skipped` blank lines came before."""
    reader = csv.reader(lines, strict=False)
    try:
        names = [name.strip().lower().replace(" ", "_") for name in next(reader, [])]
        for cells in reader:
            yield skipped + reader.line_num, dict(zip(names, (cell.strip() for cell in cells), strict=False))
    except csv.Error as error:
        raise Unreadable(f"Line {skipped + reader.line_num} cannot be read: {error}.") from None
