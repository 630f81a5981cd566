"""Normalises requests to compatibility APIs: empty fields, recipients with display names, wrapped base64."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from heliograph.accept.email import HeaderOverrides
from heliograph.accept.verify_send import SENDER_LOCAL_PART
from heliograph.domain.limits import NAME_ADDR_MAX, RECIPIENTS_MAX
from heliograph.domain.mail.address import format_name_addr, parse_name_addr
from heliograph.domain.mail.sender import resolve_brand_domain
from heliograph.domain.refusals import InvalidEmail, Refusal, TooManyRecipients
from heliograph.domain.setup.records import Caller
from heliograph.domain.text import quoted
from heliograph.web.bodies import to_request

_ENTRY = re.compile(r'(?:"(?:[^"\\]|\\.)*+"|[^",])++')  # a comma inside a quoted name does not separate
_FILE_FIELDS = ("content", "Content", "data")  # fields with a file's content, which is allowed to be empty

# position in a batch, omitted because each mail has its own response
_BATCH_POSITION = re.compile(r"messages\[[0-9]+\]\.?")
_NAME_IN_PATH = re.compile("[a-z_]+")
_NAME_IN_TEXT = re.compile(r"(?<=')[a-z]+(?=')|\b[a-z]+_[a-z_]+\b")

T = TypeVar("T")


def drop_empty(value: Any) -> Any:
    """Return `value` without empty fields, at the top level and in lists.

    Some clients send an empty field where others omit the field.
    """
    if not isinstance(value, dict):
        return value
    return {name: _drop_empty_items(item) for name, item in value.items() if not _is_empty(item)}


def parse_request(struct: type[T], value: Any) -> T:
    return to_request(drop_empty(value), struct)


def _drop_empty_items(value: Any) -> Any:
    if not isinstance(value, list):
        return value  # objects are data of the caller: variables, headers, metadata
    return [_drop_empty_fields(item) if isinstance(item, dict) else item for item in value]


def _drop_empty_fields(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name in _FILE_FIELDS or not _is_empty(value)}


def _is_empty(value: Any) -> bool:
    return isinstance(value, str | list | dict) and not value


def with_client_field_names(refusal: Refusal, names: Mapping[str, str]) -> str:
    """Return the refusal's message with the compatibility API's field names. `names`: our name → theirs.

    Replaces only names that cannot be ordinary words: at the beginning of the message, in quotes, or with an
    underscore.
    """

    def translate(match: re.Match[str]) -> str:
        return names.get(match[0], match[0])

    path = _BATCH_POSITION.sub("", refusal.param or "")
    starts_with_path = path and re.match(rf"{re.escape(path)}(?!\w)", refusal.message)
    leading_path, rest = (path, refusal.message[len(path) :]) if starts_with_path else ("", refusal.message)
    if not leading_path.startswith(tuple(names.values())):  # `lead` may already be the client's field name
        leading_path = _NAME_IN_PATH.sub(translate, leading_path)
    return leading_path + _NAME_IN_TEXT.sub(translate, rest)


class Mailbox(NamedTuple):
    address: str
    header: str  # address with display name, for the mail header


def split_mailboxes(text: str | None, field: str) -> list[Mailbox]:
    """Return the mailboxes of a comma-separated list; empty if `text` is empty."""
    entries = (text or "").strip(" \t\r\n,")
    return [_parse_mailbox(entry, field) for entry in _split_entries(entries, field)] if entries else []


def read_mailboxes(texts: Sequence[str], field: str) -> list[Mailbox]:
    _check_count(len(texts), field)
    return [_parse_mailbox(text, field) for text in texts]


def addresses_of(mailboxes: Sequence[Mailbox]) -> list[str]:
    return [mailbox.address for mailbox in mailboxes]


def header_overrides(to: Sequence[Mailbox], cc: Sequence[Mailbox]) -> HeaderOverrides:
    return HeaderOverrides(to=[mailbox.header for mailbox in to], cc=[mailbox.header for mailbox in cc])


def default_sender(caller: Caller) -> str | None:
    """Return the sender of a mail without a From address: no-reply at the brand's domain.

    None (the platform's sender) without such a domain, and for sandbox teams.
    """
    domain = None if caller.team.sandbox else resolve_brand_domain(caller.team, caller.key, None)
    return f"{SENDER_LOCAL_PART}@{domain.name}" if domain else None


def unwrap_base64(base64: str) -> str:
    """Return base64 without line breaks, which mail clients add."""
    return base64.replace("\r", "").replace("\n", "")


def _split_entries(text: str, field: str) -> Iterator[str]:
    """Yield the mailboxes of a comma-separated list. Fails at the first invalid one, so that parsing time is linear."""
    position, count = 0, 0
    while match := _ENTRY.match(text, position):
        position, count = match.end() + 1, count + 1
        _check_count(count, field)
        yield match[0]
        if position > len(text):
            return
        if text[position - 1] != ",":
            break
    raise _invalid_email(text, field)


def _check_count(count: int, field: str) -> None:
    if count > RECIPIENTS_MAX:
        message = f"{field} has more than {RECIPIENTS_MAX} recipients. {TooManyRecipients.fix}"
        raise TooManyRecipients(message, param=field)


def _parse_mailbox(text: str, field: str) -> Mailbox:
    name_and_address = parse_name_addr(text)
    if name_and_address is None:
        raise _invalid_email(text, field)
    name, address = name_and_address
    return Mailbox(address.original, format_name_addr(name or "", address.original))


def _invalid_email(text: str, field: str) -> InvalidEmail:
    subject = "A bcc entry" if field == "bcc" else f"{field} {quoted(text)}"
    message = f"{subject} is not a valid email address. {InvalidEmail.fix}"
    return InvalidEmail(message, param=field, details={"address": text[:NAME_ADDR_MAX].strip()})
