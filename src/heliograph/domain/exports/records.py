"""The records of an export, whatever the service: a CSV file, a JSON answer of its API, or a record on each line."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from heliograph.domain.limits import REPLY_TO_MAX
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
Row = Mapping[str, Any]  # names in lower case, with _ for spaces


class ExportedAddress(msgspec.Struct, frozen=True, kw_only=True):
    """One that is not to be mailed."""

    email: str
    reason: str = ""


class ExportedDomain(msgspec.Struct, frozen=True, kw_only=True):
    name: str


class ExportedTemplate(msgspec.Struct, frozen=True, kw_only=True):
    id: str  # that the service gave it
    name: str
    channel: Channel = "email"
    words: Mapping[str, Any]  # by the field that has them here
    own_id: str = ""  # by which its sends name it here as well
    kept: Mapping[str, Any] = {}  # fields of its record that a setup file does not have
    notes: Sequence[str] = ()  # what means something else here, by part and line


class ExportedLayout(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    own_id: str  # by which its templates name it
    words: Mapping[str, Any]


def edit_exported(given: ExportedTemplate, id_: str, team: str) -> Edited:
    """Make it one of ours, with what is wrong with it."""
    base = Template(id=id_, team=team, channel=given.channel, name=given.name)
    return with_kept(edit_template(base, {"name": given.name, "variables": [], **given.words}), given.kept)


def with_kept(edited: Edited, kept: Mapping[str, Any]) -> Edited:
    """Give it what other services keep with a template beside its words, as far as a send can use it."""
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
    notes: Sequence[str] = ()  # all of it, by part and line


Exported = ExportedAddress | ExportedDomain | ExportedTemplate | ExportedLayout | LeftOut
ReadRow = Callable[[Row], Exported]  # a service's own


class ExportedWords(msgspec.Struct, frozen=True):
    """A template's parts, carried over into our words."""

    given: dict[str, Any]
    fallback: dict[str, str]
    left: list[str]
    changed: list[str]


def items_of(value: Any) -> list[Any]:
    """Return what a list has in it; what is none has nothing."""
    return value if isinstance(value, list) else []


def read_words(parts: Mapping[str, str]) -> ExportedWords:
    """Carry over each part; what conditions and lists ask for may be absent, as it may there."""
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


def read_export(file: bytes, read: Callable[[Row], T]) -> list[tuple[int, T]]:
    """Read each record with its line in the file, or its place in a JSON list, from 1."""
    try:
        text = file.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unreadable("The file is not UTF-8 text. Export it again as CSV or JSON in UTF-8.") from None
    found = [(number, read(row)) for number, row in _rows(text) if any(row.values())]
    if not found:
        raise Unreadable("The file has no records.")
    if len(found) > LINES_MAX:
        raise Unreadable(f"The file has more than {LINES_MAX:,} records. Import it in parts.")
    return found


def _rows(text: str) -> Iterator[tuple[int, Row]]:
    if not text.lstrip().startswith(("{", "[")):
        yield from _cells(text)
        return
    try:
        records = _listed(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError):
        records = [_decoded(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict):
            raise Unreadable(f"Record {number} is not an object.")
        yield number, {name.lower(): value for name, value in record.items()}


def _listed(value: Any) -> list[Any]:
    """An API's list has its records in one of its fields."""
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


def _cells(text: str) -> Iterator[tuple[int, Row]]:
    reader = csv.reader(text.splitlines(keepends=True), strict=False)
    try:
        names = [name.strip().lower().replace(" ", "_") for name in next(reader, [])]
        for cells in reader:
            yield reader.line_num, dict(zip(names, (cell.strip() for cell in cells), strict=False))
    except csv.Error as error:
        raise Unreadable(f"Line {reader.line_num} cannot be read: {error}.") from None
