"""Parses the records of an export of any service: CSV, a JSON response of its API, or JSON lines."""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TextIO, TypeVar

import msgspec
from msgspec.structs import replace

from heliograph.domain.limits import MIB, REPLY_TO_MAX
from heliograph.domain.mail.address import parse_name_addr
from heliograph.domain.mail.suppression_file import ROWS_MAX, UnreadableFile
from heliograph.domain.setup.records import Channel, Template
from heliograph.domain.text import quoted
from heliograph.templates.policy.check import EXAMPLE_MAX, VARIABLES_MAX
from heliograph.templates.policy.import_syntax import convert_template
from heliograph.templates.policy.placeholders import NAME_MAX
from heliograph.templates.policy.render import CONTROL_CHARACTER
from heliograph.templates.policy.template_edit import EditResult, edit_template

T = TypeVar("T")
DOCUMENT_MAX = 32 * MIB  # maximum characters of a JSON document, which is read at once, or of one line
Row = Mapping[str, Any]  # field name in lower case, with _ instead of spaces → value


class ExportedAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A suppressed address in an export."""

    email: str
    reason: str = ""


class ExportedDomain(msgspec.Struct, frozen=True, kw_only=True):
    name: str


class ExportedTemplate(msgspec.Struct, frozen=True, kw_only=True):
    id: str  # id at the other service
    name: str
    channel: Channel = "email"
    content: Mapping[str, Any]  # content by our field names
    local_id: str = ""  # template id here: the one in the client's existing API calls, which therefore keep working
    extra_fields: Mapping[str, Any] = {}  # record fields that a setup file does not have
    notes: Sequence[str] = ()  # texts about template code that has another meaning here, with part and line


class ExportedLayout(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    local_id: str  # id by which templates refer to the layout
    content: Mapping[str, Any]


def edit_exported(exported: ExportedTemplate, id_: str, team: str) -> EditResult:
    """Convert an exported template to a template of Heliograph; return the template and its errors."""
    base = Template(id=id_, team=team, channel=exported.channel, name=exported.name)
    return with_extra_fields(
        edit_template(base, {"name": exported.name, "variables": [], **exported.content}), exported.extra_fields
    )


def with_extra_fields(edited: EditResult, extra_fields: Mapping[str, Any]) -> EditResult:
    """Add the fields that only the source service has to an imported template; `errors` names the invalid values."""
    new, errors = replace(edited.template, **extra_fields), dict(edited.errors)
    if len(new.alias) > NAME_MAX or CONTROL_CHARACTER.search(new.alias):
        errors["alias"] = f"Must be one line of at most {NAME_MAX} characters."
    if new.sender and not parse_name_addr(new.sender):
        errors["sender"] = f"{quoted(new.sender)} is not an address. Enter one such as Acme <hello@acme.test>."
    if invalid := next((address for address in new.reply_to if not parse_name_addr(address)), None):
        errors["reply_to"] = f"{quoted(invalid)} is not an address. Enter one such as help@acme.test."
    if len(new.reply_to) > REPLY_TO_MAX:
        errors["reply_to"] = f"There are {len(new.reply_to)} addresses; the maximum is {REPLY_TO_MAX}."
    if len(new.fallback) > VARIABLES_MAX or any(len(str(value)) > EXAMPLE_MAX for value in new.fallback.values()):
        errors["variables"] = (
            f"At most {VARIABLES_MAX} fallbacks of at most {EXAMPLE_MAX:,} characters each are allowed."
        )
    return EditResult(new, errors, edited.added_variables)


class SkippedRow(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    reason: str
    notes: Sequence[str] = ()  # every reason why a template is skipped, with its part and line; `reason` is the first


Exported = ExportedAddress | ExportedDomain | ExportedTemplate | ExportedLayout | SkippedRow
ConvertRow = Callable[[Row], Exported]  # converts an exported row of one service to our record


class ConvertedParts(msgspec.Struct, frozen=True):
    """The parts of another service's template, converted to our syntax."""

    parts: dict[str, Any]
    fallback: dict[str, str]
    unsupported: list[str]
    changed: list[str]


def as_list(value: Any) -> list[Any]:
    """Return `value` if it is a list, otherwise an empty list."""
    return value if isinstance(value, list) else []


def convert_parts(parts: Mapping[str, str]) -> ConvertedParts:
    """Convert each part to our syntax; variables in conditions and lists become optional, as in the other service."""
    converted = {part: convert_template(text) for part, text in parts.items()}
    names = sorted({name for part_result in converted.values() for name in part_result.optional})
    return ConvertedParts(
        {part: part_result.text for part, part_result in converted.items()} | ({"optional": names} if names else {}),
        {name: text for part_result in converted.values() for name, text in part_result.fallback.items()},
        [f"{part}, {problem}" for part, part_result in converted.items() for problem in part_result.unsupported],
        [f"{part}, {problem}" for part, part_result in converted.items() for problem in part_result.changed],
    )


def skipped_template(name: str, converted: ConvertedParts) -> SkippedRow:
    return SkippedRow(text=name, reason=converted.unsupported[0], notes=converted.unsupported)


def parse_export(text: TextIO, convert: Callable[[Row], T]) -> Iterator[tuple[int, T]]:
    """Yield (number, record): the number is the line in the file, or the index in a JSON list, from 1.

    CSV and JSON lines are read line by line; a JSON document is read at once, up to DOCUMENT_MAX characters.
    """
    count = 0
    try:
        for number, row in _parse_rows(text):
            if any(row.values()):
                count += 1
                if count > ROWS_MAX:
                    raise UnreadableFile(f"The file has more than {ROWS_MAX:,} records. Import it in parts.")
                yield number, convert(row)
    except UnicodeDecodeError:
        raise UnreadableFile("The file is not UTF-8 text. Export it again as CSV or JSON in UTF-8.") from None
    if not count:
        raise UnreadableFile("The file has no records.")


def _parse_rows(text: TextIO) -> Iterator[tuple[int, Row]]:
    lines = enumerate(_read_lines(text), 1)
    start, first = next((numbered_line for numbered_line in lines if numbered_line[1].strip()), (1, ""))
    if not first.lstrip().startswith(("{", "[")):
        yield from _parse_csv(chain([first], (line for _, line in lines)), start - 1)
        return
    for number, record in enumerate(_parse_json_records(start, first, lines, text), 1):
        if not isinstance(record, dict):
            raise UnreadableFile(f"Record {number} is not an object.")
        yield number, {name.lower(): value for name, value in record.items()}


def _read_lines(text: TextIO) -> Iterator[str]:
    while line := text.readline(DOCUMENT_MAX + 1):
        _check_length(line)
        yield line


def _check_length(text: str) -> None:
    if len(text) > DOCUMENT_MAX:
        raise UnreadableFile(
            f"A JSON document or line has more than {DOCUMENT_MAX:,} characters. "
            "Export as JSON lines or CSV, or in parts."
        )


def _parse_json_records(start: int, first: str, lines: Iterator[tuple[int, str]], text: TextIO) -> Iterator[Any]:
    """Yield the records of a file in JSON lines, or else of a file with one JSON document.

    A file has JSON lines if its first line is complete JSON and more lines follow.
    """
    second = (
        next((numbered_line for numbered_line in lines if numbered_line[1].strip()), None) if _is_json(first) else None
    )
    if second:
        following = chain([(start, first), second], lines)
        yield from (_decode_json_line(number, line) for number, line in following if line.strip())
        return
    document = first + text.read(DOCUMENT_MAX + 1)
    _check_length(document)
    try:
        yield from _response_records(msgspec.json.decode(document))
    except (msgspec.DecodeError, RecursionError):
        numbered = enumerate(document.splitlines(), start)
        yield from (_decode_json_line(number, line) for number, line in numbered if line.strip())


def _is_json(line: str) -> bool:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _response_records(value: Any) -> list[Any]:
    """Return the records of an API response, which are the response itself or one of its fields."""
    if isinstance(value, dict):
        lists = [inner for inner in value.values() if isinstance(inner, list) and inner and isinstance(inner[0], dict)]
        is_list = value.get("object") == "list" or "html" not in value
        return lists[0] if len(lists) == 1 and is_list and "name" not in value else [value]
    return value if isinstance(value, list) else [value]


def _decode_json_line(number: int, line: str) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        raise UnreadableFile(f"Line {number} is not JSON.") from None


def _parse_csv(lines: Iterable[str], blank_lines: int) -> Iterator[tuple[int, Row]]:
    """Yield (line number, row) of a CSV file. `blank_lines`: number of blank lines before `lines`."""
    reader = csv.reader(lines, strict=False)
    try:
        names = [name.strip().lower().replace(" ", "_") for name in next(reader, [])]
        for cells in reader:
            yield blank_lines + reader.line_num, dict(zip(names, (cell.strip() for cell in cells), strict=False))
    except csv.Error as error:
        raise UnreadableFile(f"Line {blank_lines + reader.line_num} can't be read: {error}.") from None
