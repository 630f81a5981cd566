"""Builds the submit_sm bodies of an SMS."""

import re
from functools import lru_cache

from msgspec.structs import replace

from heliograph.carriers.sms.smpp.pdu import MESSAGE_PAYLOAD, ShortMessage, SmppAddress, encode_short_message
from heliograph.carriers.sms.smpp.text import encode_text, fits_single_part, split_into_parts
from heliograph.domain.setup.carrier_kinds import LongTextMode

USER_DATA_HEADER = 0x40  # esm_class: the text starts with a user data header
REQUEST_RECEIPT = 1

VALIDITY_MAX_S = 31 * 86_400
ALPHANUMERIC_SENDER_MAX = 11  # characters of an alphanumeric sender, a limit of the GSM network
SHORT_CODE_MAX = 8  # maximum digits of a short code; longer numbers are international
_PHONE_NUMBER = re.compile("([+]?)([0-9]+)")
_NOT_PRINTABLE_ASCII = re.compile("[^ -~]")


@lru_cache(maxsize=1024)  # few distinct senders are in use
def sender_address(sender: str) -> SmppAddress:
    """Return the SMPP address of a sender; an empty address makes the network use its default."""
    if number := _PHONE_NUMBER.fullmatch(sender):
        plus, digits = number.groups()
        return SmppAddress(1, 1, digits) if plus or len(digits) > SHORT_CODE_MAX else SmppAddress(3, 0, digits)
    letters = _NOT_PRINTABLE_ASCII.sub("", sender)[:ALPHANUMERIC_SENDER_MAX].strip()
    return SmppAddress(5, 0, letters) if letters else SmppAddress(0, 0, "")


def relative_time(seconds: int) -> str:
    """Return a relative time in SMPP format (YYMMDDhhmmsstnnR), at most 31 days; empty for 0."""
    days, remainder = divmod(min(seconds, VALIDITY_MAX_S), 86_400)
    return f"0000{days:02}{remainder // 3600:02}{remainder // 60 % 60:02}{remainder % 60:02}000R" if seconds else ""


def build_submit_bodies(
    source: SmppAddress, phone: str, text: str, *, reference: int, long_mode: LongTextMode, validity_s: int = 0
) -> list[bytes]:
    """Return the submit_sm bodies of a text: one, or one per part.

    `long_mode` selects parts or a message_payload for long texts; `reference` identifies the parts of a message.
    """
    coding, octets = encode_text(text)
    message = ShortMessage(
        source=source,
        destination=SmppAddress(1, 1, phone.removeprefix("+")),
        validity_period=relative_time(validity_s),
        registered_delivery=REQUEST_RECEIPT,
        data_coding=coding,
        text=octets,
    )
    if fits_single_part(coding, octets):
        return [encode_short_message(message)]
    if long_mode == "payload":
        return [encode_short_message(replace(message, text=b"", tlvs={MESSAGE_PAYLOAD: octets}))]
    parts = split_into_parts(coding, octets)
    return [
        encode_short_message(
            replace(message, esm_class=USER_DATA_HEADER, text=bytes((5, 0, 3, reference, len(parts), number)) + part)
        )
        for number, part in enumerate(parts, 1)
    ]
