"""Parser of delivery status notifications (RFC 3464): one group of fields per recipient."""

import re
from collections.abc import Sequence

import msgspec

from heliograph.inbound.policy.bounce_recipient import is_ours, without_route
from heliograph.inbound.policy.bounce_text import own_words
from heliograph.inbound.policy.mail_parts import Fields, ReceivedMail, read_fields

_NAMED = ("final-recipient", "original-recipient")
_TOLD = ("action", "status", "diagnostic-code")
_ADDRESS = re.compile(r"[^\s<>;]{1,64}@[^\s<>;]{1,255}")
_STATUS = re.compile(r"[245]\.[0-9]{1,3}\.[0-9]{1,3}")
_INSIDE_TEXT = re.compile(r"^\s{0,8}content-type:\s{0,8}message/delivery-status.*$", re.IGNORECASE | re.MULTILINE)

# The five actions of RFC 3464, and prefixes of variants that some servers write.
_ACTIONS = {
    "fail": "failed",
    "expire": "failed",
    "undeliver": "failed",
    "error": "failed",
    "delay": "delayed",
    "defer": "delayed",
    "deliver": "delivered",
    "relay": "relayed",
    "expan": "expanded",
}


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a DSN about one recipient."""

    action: str | None = None
    status: str | None = None
    diagnostic: str = ""
    final: str | None = None  # final recipient
    original: str | None = None  # original recipient, as the sender gave it

    @property
    def recipient(self) -> str | None:
        return self.final or self.original


def read_status(mail: ReceivedMail) -> list[Group]:
    """Return the groups that have an action or a status, one per recipient."""
    groups = [group for part in mail.parts if part.type.endswith("delivery-status") for group in _groups(part.text)]
    return [group for group in groups or _groups_in_text(mail) if group.action or group.status]


def choose(groups: Sequence[Group], ours: str | None) -> Group | None:
    """Return the group about our recipient, else one without an address, else any. Failed ones come first."""
    return min(groups, key=lambda group: (_distance(group, ours), group.action != "failed"), default=None)


def _distance(group: Group, ours: str | None) -> int:
    if ours is None or (group.recipient and is_ours(group.recipient, ours)):
        return 0
    if group.recipient is None:
        return 2
    return 1 if group.original and is_ours(group.original, ours) else 3


def _groups_in_text(mail: ReceivedMail) -> list[Group]:
    """Parse groups in the text, for reports with broken or missing MIME."""
    text = mail.text()
    labelled = _INSIDE_TEXT.search(text)
    groups = _groups(text[labelled.end() :] if labelled else own_words(text))
    return [group for group in groups if group.action and group.status and group.recipient]


def _groups(text: str) -> list[Group]:
    blocks: list[Fields] = []
    for block in re.split(r"\n[ \t]*\n", text):
        fields = read_fields(block)
        if not any(name in fields for name in _NAMED + _TOLD):
            continue
        parted = blocks and not any(name in blocks[-1] for name in _TOLD) and not any(name in fields for name in _NAMED)
        if parted:  # a blank line between a recipient and its fields
            blocks[-1] |= fields
        else:
            blocks.append(fields)
    return [_group(fields) for fields in blocks]


def _group(fields: Fields) -> Group:
    action = fields.get("action", "").lower()
    status = _STATUS.search(fields.get("status", ""))
    return Group(
        action=next((name for start, name in _ACTIONS.items() if action.startswith(start)), None),
        status=status[0] if status else None,
        diagnostic=fields.get("diagnostic-code", ""),
        final=_address(fields.get("final-recipient", "")),
        original=_address(fields.get("original-recipient", "")),
    )


def _address(named: str) -> str | None:
    found = _ADDRESS.search(without_route(named.partition(";")[2] or named))
    return found[0] if found else None
