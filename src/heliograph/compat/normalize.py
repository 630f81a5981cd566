"""Normalises input of other services' clients: empty fields, recipients with display names, wrapped base64."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from heliograph.accept.email import Shown
from heliograph.accept.verify_send import SENDER
from heliograph.domain.limits import NAME_ADDR_MAX, RECIPIENTS_MAX
from heliograph.domain.mail.address import name_addr, parse_name_addr
from heliograph.domain.mail.sender import brand_domain
from heliograph.domain.refusals import InvalidEmail, Refusal, TooManyRecipients
from heliograph.domain.setup.records import Caller
from heliograph.domain.text import quoted
from heliograph.web.bodies import to_request

_ONE = re.compile(r'(?:"(?:[^"\\]|\\.)*+"|[^",])++')  # a comma inside a quoted name is no separator
_FILE = ("content", "Content", "data")  # fields with file content, which may be empty

_PLACE = re.compile(r"messages\[[0-9]+\]\.?")  # position in a batch; left out because each mail has a separate response
_WORD = re.compile("[a-z_]+")
_NAMED = re.compile(r"(?<=')[a-z]+(?=')|\b[a-z]+_[a-z_]+\b")

T = TypeVar("T")


def present(given: Any) -> Any:
    """Return `given` without empty fields, at the top level and in lists: clients send these for absent values."""
    if not isinstance(given, dict):
        return given
    return {name: _items(value) for name, value in given.items() if not _is_empty(value)}


def given_as(kind: type[T], given: Any) -> T:
    return to_request(present(given), kind)


def _items(value: Any) -> Any:
    if not isinstance(value, list):
        return value  # contents of objects are the caller's data: variables, headers, metadata
    return [_fields(one) if isinstance(one, dict) else one for one in value]


def _fields(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name in _FILE or not _is_empty(value)}


def _is_empty(value: Any) -> bool:
    return isinstance(value, str | list | dict) and not value


def worded(refusal: Refusal, names: Mapping[str, str]) -> str:
    """Return the refusal's message with the other service's field names (`names`: ours → theirs).

    Our names are replaced at the beginning of the message, in quotes, and where they contain an underscore.
    """

    def own(found: re.Match[str]) -> str:
        return names.get(found[0], found[0])

    path = _PLACE.sub("", refusal.param or "")
    begins = path and re.match(rf"{re.escape(path)}(?!\w)", refusal.message)
    lead, rest = (path, refusal.message[len(path) :]) if begins else ("", refusal.message)
    return _WORD.sub(own, lead) + _NAMED.sub(own, rest)


class Mailbox(NamedTuple):
    address: str
    shown: str  # address with display name, for the mail header


def split_mailboxes(text: str | None, field: str) -> list[Mailbox]:
    """Return the mailboxes of a comma-separated list; empty if `text` is empty."""
    given = (text or "").strip(" \t\r\n,")
    return [_mailbox(one, field) for one in _split(given, field)] if given else []


def read_mailboxes(texts: Sequence[str], field: str) -> list[Mailbox]:
    _check_count(len(texts), field)
    return [_mailbox(text, field) for text in texts]


def bare(mailboxes: Sequence[Mailbox]) -> list[str]:
    return [one.address for one in mailboxes]


def shown(to: Sequence[Mailbox], cc: Sequence[Mailbox]) -> Shown:
    return Shown(to=[one.shown for one in to], cc=[one.shown for one in cc])


def own_sender(caller: Caller) -> str | None:
    """Return the default sender of a mail without one, at the brand's domain; None without such a domain and in a
    sandbox, where the platform's sender is used.
    """
    domain = None if caller.team.sandbox else brand_domain(caller.team, caller.key, None)
    return f"{SENDER}@{domain.name}" if domain else None


def unwrapped(base64: str) -> str:
    """Return base64 without line breaks, which mail clients add."""
    return base64.replace("\r", "").replace("\n", "")


def _split(text: str, field: str) -> Iterator[str]:
    """Yield the comma-separated entries; refuse invalid text at once, so that parsing takes linear time."""
    at, count = 0, 0
    while found := _ONE.match(text, at):
        at, count = found.end() + 1, count + 1
        _check_count(count, field)
        yield found[0]
        if at > len(text):
            return
        if text[at - 1] != ",":
            break
    raise _wrong(text, field)


def _check_count(count: int, field: str) -> None:
    if count > RECIPIENTS_MAX:
        told = f"{field} has more than {RECIPIENTS_MAX} recipients. {TooManyRecipients.fix}"
        raise TooManyRecipients(told, param=field)


def _mailbox(text: str, field: str) -> Mailbox:
    found = parse_name_addr(text)
    if found is None:
        raise _wrong(text, field)
    name, address = found
    return Mailbox(address.given, name_addr(name or "", address.given))


def _wrong(text: str, field: str) -> InvalidEmail:
    which = "A bcc entry" if field == "bcc" else f"{field} {quoted(text)}"
    told = f"{which} is not a valid email address. {InvalidEmail.fix}"
    return InvalidEmail(told, param=field, details={"address": text[:NAME_ADDR_MAX].strip()})
