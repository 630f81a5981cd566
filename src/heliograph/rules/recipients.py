"""Who gets an email: reading the lists, the sandbox's allowed recipients, and suppression."""

from collections import Counter
from collections.abc import Container, Mapping
from typing import Any, Literal

import msgspec

from heliograph.rules.address import Address, parse_address
from heliograph.rules.limits import RECIPIENTS_MAX, REPLY_TO_MAX
from heliograph.rules.magic import behaviour_of, is_magic_email
from heliograph.rules.refusals import (
    InvalidEmail,
    RecipientNotAllowed,
    RecipientSuppressed,
    TooManyRecipients,
)
from heliograph.rules.setup.records import Team
from heliograph.rules.text import quoted

Kind = Literal["to", "cc", "bcc"]

# Lists are read no further than this: a body of 40 MiB could hold millions of addresses.
READ_MAX = 20 * RECIPIENTS_MAX


class Recipients(msgspec.Struct, frozen=True, kw_only=True):
    to: tuple[Address, ...]
    cc: tuple[Address, ...] = ()
    bcc: tuple[Address, ...] = ()
    reply_to: tuple[Address, ...] = ()

    @property
    def count(self) -> int:
        return len(self.to) + len(self.cc) + len(self.bcc)

    def distinct(self) -> list[tuple[Address, Kind]]:
        """Each address once, as it first occurs."""
        if self.count == 1:
            return [(self.to[0], "to")]
        first: dict[str, tuple[Address, Kind]] = {}
        fields: tuple[tuple[Kind, tuple[Address, ...]], ...]
        fields = (("to", self.to), ("cc", self.cc), ("bcc", self.bcc))
        for kind, addresses in fields:
            for address in addresses:
                first.setdefault(address.normal, (address, kind))
        return list(first.values())


def read_recipients(
    to: str | list[str] | None, cc: list[str] | None, bcc: list[str] | None, reply_to: str | list[str] | None
) -> Recipients:
    if isinstance(to, str) and reply_to is None and not cc and not bcc:
        return Recipients(to=_addresses([to], "to"))  # most sends: no lists to count
    lists: dict[str, list[str]] = {
        "to": [to] if isinstance(to, str) else to or [],
        "cc": cc or [],
        "bcc": bcc or [],
    }
    if not lists["to"]:
        raise InvalidEmail("to has no address. Send at least one.", param="to")
    recipients = Recipients(
        to=_addresses(lists["to"], "to"),
        cc=_addresses(lists["cc"], "cc"),
        bcc=_addresses(lists["bcc"], "bcc"),
        reply_to=_read_reply_to(reply_to),
    )
    _check_count(lists)
    return recipients


def _read_reply_to(given: str | list[str] | None) -> tuple[Address, ...]:
    if given is None:
        return ()
    texts = [given] if isinstance(given, str) else given
    if not 1 <= len(texts) <= REPLY_TO_MAX:
        raise InvalidEmail(f"reply_to has {len(texts)} addresses. Send 1 to {REPLY_TO_MAX}.", param="reply_to")
    return _addresses(texts, "reply_to")


def _addresses(texts: list[str], field: str) -> tuple[Address, ...]:
    return tuple([parse_address(text) or _refuse(text, field) for text in texts[:READ_MAX]])


def _refuse(text: str, field: str) -> Address:
    which = "A bcc entry" if field == "bcc" else f"{field} {quoted(text)}"
    raise InvalidEmail(f"{which} is not a valid email address. {InvalidEmail.fix}", param=field)


def _check_count(lists: dict[str, list[str]]) -> None:
    for field, texts in lists.items():
        if len(texts) > RECIPIENTS_MAX:
            raise TooManyRecipients(
                f"{field} has {len(texts)} recipients, {RECIPIENTS_MAX} is the most. {TooManyRecipients.fix}",
                param=field,
            )
    count = sum(map(len, lists.values()))
    if count > RECIPIENTS_MAX:
        raise TooManyRecipients(
            f"to, cc and bcc have {count} recipients together, {RECIPIENTS_MAX} is the most. {TooManyRecipients.fix}",
            param="to",
        )


def check_allowed(recipients: Recipients, team: Team) -> None:
    """In sandbox, every recipient must be verified on the team or magic."""
    if not team.sandbox:
        return
    strangers = [
        (address, kind)
        for address, kind in recipients.distinct()
        if address.normal not in team.recipients and not is_magic_email(address.normal)
    ]
    if strangers:
        named = [address.given for address, kind in strangers if kind != "bcc"]
        if strangers[-1][1] == "bcc":
            named.append("a bcc recipient")
        raise RecipientNotAllowed(
            f"Not verified on this sandbox team: {', '.join(named)}. {RecipientNotAllowed.fix}",
            param=strangers[0][1],
        )


def split_suppressed(recipients: Recipients, suppressed: Container[str], *, drop: bool = False) -> Recipients:
    """The recipients without suppressed bcc ones; a suppressed to or cc refuses the send.

    `suppressed` holds normal forms. `drop`: they are left out as well, and refuse it only when nobody is left.
    """

    def blocked(address: Address) -> bool:
        normal = address.normal
        return normal in suppressed or (is_magic_email(normal) and behaviour_of(normal) == "suppressed")

    found = [(address, kind) for address, kind in recipients.distinct() if blocked(address)]
    if not found:
        return recipients
    named = [address.given for address, kind in found if kind != "bcc"]
    if named and not (drop and len(found) < len(recipients.distinct())):
        raise RecipientSuppressed(
            f"Suppressed recipients: {', '.join(named)}", param=found[0][1], details={"addresses": named}
        )
    to, cc, bcc = (tuple(a for a in kind if not blocked(a)) for kind in (recipients.to, recipients.cc, recipients.bcc))
    if not to:  # a record names somebody, as of a mail by SMTP that has blind copies only
        to, cc, bcc = (cc[:1], cc[1:], bcc) if cc else (bcc[:1], cc, bcc[1:])
    return msgspec.structs.replace(recipients, to=to, cc=cc, bcc=bcc)


def times_named(record: Mapping[str, Any]) -> Counter[str]:
    """How often an email's lists name each address: it gets the mail once, and counts as often (contract 4)."""
    named = map(parse_address, (*record["to_addresses"], *record["cc"], *record["bcc"]))
    return Counter(address.normal for address in named if address)
