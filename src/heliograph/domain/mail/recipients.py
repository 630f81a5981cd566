"""Recipients of an email: parsed lists, allowed recipients in the sandbox, and suppression."""

from collections import Counter
from collections.abc import Container, Iterable
from typing import Literal

import msgspec

from heliograph.domain.delivery.magic_recipients import behaviour_of, is_magic_email
from heliograph.domain.limits import RECIPIENTS_MAX, REPLY_TO_MAX
from heliograph.domain.mail.address import Address, parse_address
from heliograph.domain.refusals import (
    InvalidEmail,
    RecipientNotAllowed,
    RecipientSuppressed,
    TooManyRecipients,
)
from heliograph.domain.setup.records import Team
from heliograph.domain.text import quoted

Kind = Literal["to", "cc", "bcc"]

# Maximum number of addresses of a list that are parsed: a body of 40 MiB could contain millions of addresses.
PARSED_MAX = 20 * RECIPIENTS_MAX


class Recipients(msgspec.Struct, frozen=True, kw_only=True):
    to: tuple[Address, ...]
    cc: tuple[Address, ...] = ()
    bcc: tuple[Address, ...] = ()
    reply_to: tuple[Address, ...] = ()
    distinct: tuple[tuple[Address, Kind], ...]  # each address once, with its first kind

    @property
    def count(self) -> int:
        return len(self.to) + len(self.cc) + len(self.bcc)


def distinct_recipients(
    to: tuple[Address, ...], cc: tuple[Address, ...], bcc: tuple[Address, ...]
) -> tuple[tuple[Address, Kind], ...]:
    first_by_address: dict[str, tuple[Address, Kind]] = {}
    fields: tuple[tuple[Kind, tuple[Address, ...]], ...] = (("to", to), ("cc", cc), ("bcc", bcc))
    for kind, addresses in fields:
        for address in addresses:
            first_by_address.setdefault(address.normal, (address, kind))
    return tuple(first_by_address.values())


def parse_recipients(
    to: str | list[str] | None, cc: list[str] | None, bcc: list[str] | None, reply_to: str | list[str] | None
) -> Recipients:
    if isinstance(to, list) and len(to) == 1:
        to = to[0]
    if isinstance(to, str) and reply_to is None and not cc and not bcc:  # the most frequent case: no lists to count
        address = parse_address(to) or _reject_address(to, "to")
        return Recipients(to=(address,), distinct=((address, "to"),))
    lists: dict[str, list[str]] = {
        "to": [to] if isinstance(to, str) else to or [],
        "cc": cc or [],
        "bcc": bcc or [],
    }
    if not lists["to"]:
        raise InvalidEmail("to contains no address. Send at least one.", param="to")
    parsed = (
        _parse_addresses(lists["to"], "to"),
        _parse_addresses(lists["cc"], "cc"),
        _parse_addresses(lists["bcc"], "bcc"),
    )
    reply_addresses = _parse_reply_to(reply_to)
    _check_count(lists)
    return Recipients(
        to=parsed[0], cc=parsed[1], bcc=parsed[2], reply_to=reply_addresses, distinct=distinct_recipients(*parsed)
    )


def _parse_reply_to(reply_to: str | list[str] | None) -> tuple[Address, ...]:
    if reply_to is None:
        return ()
    texts = [reply_to] if isinstance(reply_to, str) else reply_to
    if not 1 <= len(texts) <= REPLY_TO_MAX:
        raise InvalidEmail(f"reply_to has {len(texts)} addresses. Send 1 to {REPLY_TO_MAX}.", param="reply_to")
    return _parse_addresses(texts, "reply_to")


def _parse_addresses(texts: list[str], field: str) -> tuple[Address, ...]:
    return tuple([parse_address(text) or _reject_address(text, field) for text in texts[:PARSED_MAX]])


def _reject_address(text: str, field: str) -> Address:
    description = "A bcc entry" if field == "bcc" else f"{field} {quoted(text)}"
    raise InvalidEmail(f"{description} is not a valid email address. {InvalidEmail.fix}", param=field)


def _check_count(lists: dict[str, list[str]]) -> None:
    for field, texts in lists.items():
        if len(texts) > RECIPIENTS_MAX:
            raise TooManyRecipients(
                f"{field} has {len(texts)} recipients; the maximum is {RECIPIENTS_MAX}. {TooManyRecipients.fix}",
                param=field,
            )
    count = sum(map(len, lists.values()))
    if count > RECIPIENTS_MAX:
        raise TooManyRecipients(
            f"to, cc and bcc have {count} recipients in total; the maximum is {RECIPIENTS_MAX}. "
            f"{TooManyRecipients.fix}",
            param="to",
        )


def check_allowed(recipients: Recipients, team: Team) -> None:
    """Reject a sandbox team's send to recipients that are neither confirmed for the team nor magic."""
    if not team.sandbox:
        return
    not_allowed = [
        (address, kind)
        for address, kind in recipients.distinct
        if address.normal not in team.recipients and not is_magic_email(address.normal)
    ]
    if not_allowed:
        visible = [address.original for address, kind in not_allowed if kind != "bcc"]
        if not_allowed[-1][1] == "bcc":
            visible.append("a bcc recipient")
        raise RecipientNotAllowed(
            f"Not verified for this sandbox team: {', '.join(visible)}. {RecipientNotAllowed.fix}",
            param=not_allowed[0][1],
        )


def remove_suppressed(recipients: Recipients, suppressed: Container[str], *, drop: bool = False) -> Recipients:
    """Return the recipients without suppressed bcc ones; a suppressed to or cc recipient rejects the send.

    `suppressed`: addresses in normal form. With `drop`, suppressed to and cc recipients are removed as well, and the
    send is rejected only if no recipient remains.
    """
    removed: list[tuple[Address, Kind]] = []
    for address, kind in recipients.distinct:
        normal = address.normal
        if normal in suppressed or (normal.startswith("suppressed") and _simulates_suppression(normal)):
            removed.append((address, kind))
    if not removed:
        return recipients
    removed_addresses = {address.normal for address, _ in removed}
    visible = [address.original for address, kind in removed if kind != "bcc"]
    if visible and not (drop and len(removed) < len(recipients.distinct)):
        raise RecipientSuppressed(
            f"Suppressed recipients: {', '.join(visible)}", param=removed[0][1], details={"addresses": visible}
        )
    lists = (recipients.to, recipients.cc, recipients.bcc)
    to, cc, bcc = (
        tuple(address for address in addresses if address.normal not in removed_addresses) for addresses in lists
    )
    if not to:  # a record needs a `to`, also for a mail by SMTP that has only bcc recipients
        to, cc, bcc = (cc[:1], cc[1:], bcc) if cc else (bcc[:1], cc, bcc[1:])
    return msgspec.structs.replace(recipients, to=to, cc=cc, bcc=bcc, distinct=distinct_recipients(to, cc, bcc))


def _simulates_suppression(normal: str) -> bool:
    return is_magic_email(normal) and behaviour_of(normal) == "suppressed"


def count_address_uses(addresses: Iterable[str]) -> Counter[str]:
    """Count how often an email's lists contain each address, although it receives the mail only once (contract 4)."""
    parsed = map(parse_address, addresses)
    return Counter(address.normal for address in parsed if address)
