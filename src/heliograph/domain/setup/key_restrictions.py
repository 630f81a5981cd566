"""Restrictions of API keys (contract 20): parsing, JSON form, and the checks of a send.

Limits per hour and day and spend limits are in `domain/sending/key_limits.py`.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import msgspec

from heliograph.domain.field_docs import describe, schema_limits
from heliograph.domain.mail.address import Address
from heliograph.domain.mail.recipients import Kind
from heliograph.domain.refusals import (
    ChannelNotPermitted,
    InsufficientScope,
    InvalidRequest,
    RecipientNotPermitted,
    SenderNotPermitted,
    TemplateNotPermitted,
)
from heliograph.domain.sending.pricing import format_money
from heliograph.domain.setup.keys import RESTRICTED_CREATOR
from heliograph.domain.setup.records import Key, KeyChannel, KeyRestrictions
from heliograph.domain.setup.values import Count, Money, matching, read_inbound, read_recipient
from heliograph.domain.text import quoted
from heliograph.domain.validation import InvalidValue, convert_at, parse_with

ANY = "*"
LIST_MAX = 1000  # maximum entries of one restriction, such as `recipients`
MANAGES_KEYS = "keys"  # action of a route that creates, changes or rotates keys
_PHONE_PREFIX = re.compile(r"\+[1-9][0-9]{0,14}\*")

Action = Literal["", "email", "sms", "whatsapp", "verify", "keys"]  # action of a route; empty: not restricted


def _read_list(items: list[str]) -> tuple[str, ...]:
    if len(items) > LIST_MAX:
        raise ValueError(f"expected at most {LIST_MAX} entries, got {len(items)}")
    return tuple(dict.fromkeys(items))


def _read_sender(text: str) -> str:
    if text == ANY:
        return text
    try:
        return read_inbound(text)
    except ValueError:
        raise ValueError(f"expected an email address, '*@domain' or '*', got {quoted(text)}") from None


def _read_recipient_pattern(text: str) -> str:
    if text == ANY or _PHONE_PREFIX.fullmatch(text):
        return text
    try:
        return read_inbound(text) if "@" in text else read_recipient(text)
    except ValueError:
        raise ValueError(
            "expected an email address, '*@domain', a phone number such as +4915112345678, a prefix such as '+49*' "
            f"or '*', got {quoted(text)}"
        ) from None


_ABSENT: Any = msgspec.UNSET
_Sender = Annotated[str, parse_with(_read_sender)]
_Recipient = Annotated[str, parse_with(_read_recipient_pattern)]
_Template = Annotated[str, matching(r"tpl_[A-Za-z0-9_]{1,64}|\*", "a template id such as tpl_welcome, or '*'")]


class RestrictionFields(msgspec.Struct):
    """Restrictions as written in a setup file, a JSON file, an API request or the dashboard."""

    channels: Annotated[list[KeyChannel], parse_with(_read_list)] = _ABSENT
    senders: Annotated[list[_Sender], parse_with(_read_list)] = _ABSENT
    recipients: Annotated[list[_Recipient], parse_with(_read_list)] = _ABSENT
    templates: Annotated[list[_Template], parse_with(_read_list)] = _ABSENT
    per_hour: Count = _ABSENT
    per_day: Count = _ABSENT
    spend_per_day: Money = _ABSENT
    approval: Literal["required"] = _ABSENT


_LIST_LIMITS = schema_limits(maxItems=LIST_MAX)


class RestrictionsRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Restrictions of an API key. An absent field does not restrict, an empty list or 0 permits nothing."""

    channels: Annotated[
        list[KeyChannel] | None,
        describe("Channels that the key may use.", maybe=True, example=["email"]),
    ] = None
    senders: Annotated[
        Annotated[list[str], _LIST_LIMITS] | None,
        describe("Sender addresses of emails: addresses, `*@domain` or `*`.", maybe=True, example=["*@demo.test"]),
    ] = None
    recipients: Annotated[
        Annotated[list[str], _LIST_LIMITS] | None,
        describe(
            "Recipients in To, Cc, Bcc, phones and verifications: addresses, `*@domain`, E.164 numbers, prefixes such "
            "as `+49*`, or `*`.",
            maybe=True,
            example=["*@example.com", "+49*"],
        ),
    ] = None
    templates: Annotated[
        Annotated[list[str], _LIST_LIMITS] | None,
        describe("Template ids; emails without a template are then refused. `*`: all, and no template.", maybe=True),
    ] = None
    per_hour: Annotated[int | None, describe("Recipients in any 60 minutes.", maybe=True, minimum=0, example=20)] = None
    per_day: Annotated[int | None, describe("Recipients in any 24 hours.", maybe=True, minimum=0, example=100)] = None
    spend_per_day: Annotated[
        str | None, describe("Amount charged or held in any 24 hours.", maybe=True, example="5.0000")
    ] = None
    approval: Annotated[
        Literal["required"] | None,
        describe(
            "`required`: every message is held until a person releases it; verifications are refused.", maybe=True
        ),
    ] = None


def from_fields(fields: dict[str, Any]) -> KeyRestrictions | None:
    """Return the restrictions of parsed fields; None if the fields restrict nothing."""
    return msgspec.convert(fields, KeyRestrictions) if fields else None


def parse_restrictions(value: Any) -> KeyRestrictions | None:
    """Parse restrictions from JSON; null counts as absent. Raises InvalidRequest, which names the invalid part."""
    if isinstance(value, dict):
        value = {name: item for name, item in value.items() if item is not None}
    try:
        return from_fields(convert_at("restrictions", value, RestrictionFields))
    except InvalidValue as error:
        raise InvalidRequest(f"{error}.", param=error.path) from None


def to_record(restrictions: KeyRestrictions | None) -> RestrictionsRecord | None:
    """Return the restrictions as shown in responses; requests accept the same form."""
    if restrictions is None:
        return None
    fields = msgspec.structs.asdict(restrictions)
    if restrictions.spend_per_day is not None:
        fields["spend_per_day"] = format_money(restrictions.spend_per_day)
    return msgspec.convert(fields, RestrictionsRecord)


def restrictions_revision(restrictions: KeyRestrictions | None) -> str:
    """Return a hash of the restrictions, by which a form detects a change since it was opened."""
    return hashlib.sha256(msgspec.json.encode(restrictions)).hexdigest()[:16]


def permits_address(patterns: Sequence[str], normal: str) -> bool:
    """Return whether one of the patterns permits a normalised email address."""
    return normal in patterns or ANY in patterns or f"*@{normal.rpartition('@')[2]}" in patterns


def permits_phone(patterns: Sequence[str], phone: str) -> bool:
    return (
        phone in patterns
        or ANY in patterns
        or any(pattern[0] == "+" and pattern[-1] == "*" and phone.startswith(pattern[:-1]) for pattern in patterns)
    )


def check_action(key: Key, action: Action) -> None:
    """Reject an action of a route that the restrictions of the key do not permit."""
    if not action:
        return
    if action == MANAGES_KEYS:
        raise InsufficientScope(RESTRICTED_CREATOR)
    check_channel(key, action)


def check_channel(key: Key, channel: str) -> None:
    restrictions = key.restrictions
    if restrictions is None:
        return
    if restrictions.approval and channel == "verify":
        raise ChannelNotPermitted(
            f"This key's messages need approval, which codes cannot wait for. {ChannelNotPermitted.fix}"
        )
    permitted = restrictions.channels
    if permitted is not None and channel not in permitted and ANY not in permitted:
        raise ChannelNotPermitted(
            f"This key may not send by {channel}; it may use {', '.join(permitted) or 'no channel'}. "
            f"{ChannelNotPermitted.fix}"
        )


def check_sender(key: Key, sender: Address) -> None:
    restrictions = key.restrictions
    if restrictions is None or restrictions.senders is None:
        return
    if not permits_address(restrictions.senders, sender.normal):
        raise SenderNotPermitted(
            f"This key may not send from {quoted(sender.original)}. {SenderNotPermitted.fix}", param="from"
        )


def check_template_use(key: Key, template_id: str | None) -> None:
    """Reject a send whose template the key does not permit. `template_id`: None for a message without a template."""
    restrictions = key.restrictions
    if restrictions is None or restrictions.templates is None or ANY in restrictions.templates:
        return
    if template_id is None:
        raise TemplateNotPermitted(f"This key may send templates only. {TemplateNotPermitted.fix}", param="template_id")
    if template_id not in restrictions.templates:
        raise TemplateNotPermitted(
            f"This key may not use the template {quoted(template_id)}. {TemplateNotPermitted.fix}",
            param="template_id",
        )


def check_addresses(key: Key, recipients: Iterable[tuple[Address, Kind]]) -> None:
    """Reject recipients of an email that the key does not permit.

    The error message names To and Cc recipients only, its `details` also Bcc recipients.
    """
    patterns = key.restrictions.recipients if key.restrictions else None
    if patterns is None:
        return
    refused = [(address, kind) for address, kind in recipients if not permits_address(patterns, address.normal)]
    if refused:
        visible = [address.original for address, kind in refused if kind != "bcc"]
        if len(visible) < len(refused):
            visible.append("a bcc recipient")
        raise RecipientNotPermitted(
            f"This key may not send to {', '.join(visible)}. {RecipientNotPermitted.fix}",
            param=refused[0][1],
            details={"recipients": [address.original for address, _ in refused]},
        )


def check_phone(key: Key, phone: str) -> None:
    check_code_recipient(key, phone, phone)


def check_code_recipient(key: Key, normal: str, original: str) -> None:
    """Reject a phone or email address that the key does not permit. `original`: the address as the caller wrote it."""
    patterns = key.restrictions.recipients if key.restrictions else None
    if patterns is None:
        return
    if not (permits_address if "@" in normal else permits_phone)(patterns, normal):
        raise RecipientNotPermitted(
            f"This key may not send to {original}. {RecipientNotPermitted.fix}",
            param="to",
            details={"recipients": [original]},
        )
