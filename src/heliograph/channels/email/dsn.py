"""Delivery status notifications (RFC 3464): one group of fields for each recipient."""

import re

import msgspec

from heliograph.channels.email.parts import Fields, ReceivedMail, read_fields
from heliograph.channels.email.words import own_words

_NAMED = ("final-recipient", "original-recipient")
_TOLD = ("action", "status", "diagnostic-code")
_ADDRESS = re.compile(r"[^\s<>;]{1,64}@[^\s<>;]{1,255}")
_STATUS = re.compile(r"[245]\.[0-9]{1,3}\.[0-9]{1,3}")
_INSIDE_TEXT = re.compile(r"^\s{0,8}content-type:\s{0,8}message/delivery-status.*$", re.IGNORECASE | re.MULTILINE)

# The five actions of RFC 3464, and what some servers write instead, by prefix.
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
    """What a server says about one recipient."""

    action: str | None = None
    status: str | None = None
    diagnostic: str = ""
    recipient: str | None = None


def read_status(mail: ReceivedMail) -> Group | None:
    """The group that matters: the first failed recipient, else the first."""
    groups = [group for part in mail.parts if part.type.endswith("delivery-status") for group in _groups(part.text)]
    if not groups:
        groups = _groups_in_text(mail)
    return next((group for group in groups if group.action == "failed"), groups[0] if groups else None)


def _groups_in_text(mail: ReceivedMail) -> list[Group]:
    """Reports whose MIME is broken or absent carry the same fields in their text."""
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
        if parted:  # a blank line between a recipient and what is said about it
            blocks[-1] |= fields
        else:
            blocks.append(fields)
    return [_group(fields) for fields in blocks]


def _group(fields: Fields) -> Group:
    action = fields.get("action", "").lower()
    status = _STATUS.search(fields.get("status", ""))
    named = fields.get("final-recipient") or fields.get("original-recipient") or ""
    address = _ADDRESS.search(named.partition(";")[2] or named)
    return Group(
        action=next((name for start, name in _ACTIONS.items() if action.startswith(start)), None),
        status=status[0] if status else None,
        diagnostic=fields.get("diagnostic-code", ""),
        recipient=address[0] if address else None,
    )
