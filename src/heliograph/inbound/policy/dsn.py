"""Parses delivery status notifications (RFC 3464), which have a group of fields for each recipient."""

import re
from collections.abc import Sequence

import msgspec

from heliograph.inbound.policy.bounce_recipient import is_same_mailbox, strip_route
from heliograph.inbound.policy.bounce_text import notice_text
from heliograph.inbound.policy.mail_parts import Fields, ReceivedMail, read_fields

_RECIPIENT_FIELDS = ("final-recipient", "original-recipient")
_STATUS_FIELDS = ("action", "status", "diagnostic-code")
_ADDRESS = re.compile(r"[^\s<>;]{1,64}@[^\s<>;]{1,255}")
_STATUS = re.compile(r"[245]\.[0-9]{1,3}\.[0-9]{1,3}")
_EMBEDDED_STATUS_HEADER = re.compile(
    r"^\s{0,8}content-type:\s{0,8}message/delivery-status.*$", re.IGNORECASE | re.MULTILINE
)

# the five actions of RFC 3464, and beginnings of the variants that some servers write
_ACTION_BY_PREFIX = {
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


class RecipientGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a DSN about one recipient."""

    action: str | None = None
    status: str | None = None
    diagnostic: str = ""
    final_recipient: str | None = None
    original_recipient: str | None = None  # as written by the sender

    @property
    def recipient(self) -> str | None:
        return self.final_recipient or self.original_recipient


def parse_status_groups(mail: ReceivedMail) -> list[RecipientGroup]:
    """Return the groups of fields that have an action or a status, one group per recipient."""
    groups = [
        group for part in mail.parts if part.type.endswith("delivery-status") for group in _parse_groups(part.text)
    ]
    return [group for group in groups or _parse_groups_in_text(mail) if group.action or group.status]


def choose_group(groups: Sequence[RecipientGroup], our_recipient: str | None) -> RecipientGroup | None:
    """Return the group about our recipient; if there is none, a group without an address, or else any group.

    Among equally relevant groups, a group with the action `failed` is preferred.
    """
    return min(
        groups, key=lambda group: (_relevance_rank(group, our_recipient), group.action != "failed"), default=None
    )


def _relevance_rank(group: RecipientGroup, our_recipient: str | None) -> int:
    if our_recipient is None or (group.recipient and is_same_mailbox(group.recipient, our_recipient)):
        return 0
    if group.recipient is None:
        return 2
    return 1 if group.original_recipient and is_same_mailbox(group.original_recipient, our_recipient) else 3


def _parse_groups_in_text(mail: ReceivedMail) -> list[RecipientGroup]:
    """Parse the groups from the mail's text, for reports with broken or missing MIME."""
    text = mail.text()
    match = _EMBEDDED_STATUS_HEADER.search(text)
    groups = _parse_groups(text[match.end() :] if match else notice_text(text))
    return [group for group in groups if group.action and group.status and group.recipient]


def _parse_groups(text: str) -> list[RecipientGroup]:
    blocks: list[Fields] = []
    for block in re.split(r"\n[ \t]*\n", text):
        fields = read_fields(block)
        if not any(name in fields for name in _RECIPIENT_FIELDS + _STATUS_FIELDS):
            continue
        is_continuation = (
            blocks
            and not any(name in blocks[-1] for name in _STATUS_FIELDS)
            and not any(name in fields for name in _RECIPIENT_FIELDS)
        )
        if is_continuation:  # a blank line between the address and its fields
            blocks[-1] |= fields
        else:
            blocks.append(fields)
    return [_to_group(fields) for fields in blocks]


def _to_group(fields: Fields) -> RecipientGroup:
    action = fields.get("action", "").lower()
    status = _STATUS.search(fields.get("status", ""))
    return RecipientGroup(
        action=next((name for prefix, name in _ACTION_BY_PREFIX.items() if action.startswith(prefix)), None),
        status=status[0] if status else None,
        diagnostic=fields.get("diagnostic-code", ""),
        final_recipient=_parse_address(fields.get("final-recipient", "")),
        original_recipient=_parse_address(fields.get("original-recipient", "")),
    )


def _parse_address(value: str) -> str | None:
    match = _ADDRESS.search(strip_route(value.partition(";")[2] or value))
    return match[0] if match else None
