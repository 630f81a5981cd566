"""Builds the submit_sm bodies of an SMS."""

import re
from functools import lru_cache

from msgspec.structs import replace

from heliograph.carriers.sms.smpp.pdu import MESSAGE_PAYLOAD, ShortMessage, SmppAddress, encode_short_message
from heliograph.carriers.sms.smpp.text import cut, fits, to_octets
from heliograph.domain.setup.carrier_kinds import Long

HAS_HEADER = 0x40  # esm_class: the text starts with a user data header
RECEIPT_WANTED = 1

VALIDITY_MAX_S = 31 * 86_400
LETTERS_MAX = 11  # characters of an alphanumeric sender, a limit of the GSM network
SHORT_CODE_MAX = 8  # maximum digits of a short code; longer numbers are international
_NUMBER = re.compile("([+]?)([0-9]+)")
_NO_LETTERS = re.compile("[^ -~]")


@lru_cache(maxsize=1024)  # few distinct senders are in use
def sender_address(sender: str) -> SmppAddress:
    """Return the SMPP address of a sender; an empty address makes the network use its default."""
    if number := _NUMBER.fullmatch(sender):
        plus, digits = number.groups()
        return SmppAddress(1, 1, digits) if plus or len(digits) > SHORT_CODE_MAX else SmppAddress(3, 0, digits)
    letters = _NO_LETTERS.sub("", sender)[:LETTERS_MAX].strip()
    return SmppAddress(5, 0, letters) if letters else SmppAddress(0, 0, "")


def relative(seconds: int) -> str:
    """Return a relative time in SMPP format (YYMMDDhhmmsstnnR), at most 31 days; empty for 0."""
    days, rest = divmod(min(seconds, VALIDITY_MAX_S), 86_400)
    return f"0000{days:02}{rest // 3600:02}{rest // 60 % 60:02}{rest % 60:02}000R" if seconds else ""


def compose(
    source: SmppAddress, phone: str, text: str, *, reference: int, long: Long, validity_s: int = 0
) -> list[bytes]:
    """Return the submit_sm bodies of a text: one, or one per part.

    `long` selects parts or a message_payload for long texts; `reference` identifies the parts of a message.
    """
    coding, octets = to_octets(text)
    whole = ShortMessage(
        source=source,
        destination=SmppAddress(1, 1, phone.removeprefix("+")),
        validity=relative(validity_s),
        registered=RECEIPT_WANTED,
        coding=coding,
        text=octets,
    )
    if fits(coding, octets):
        return [encode_short_message(whole)]
    if long == "payload":
        return [encode_short_message(replace(whole, text=b"", tlvs={MESSAGE_PAYLOAD: octets}))]
    parts = cut(coding, octets)
    return [
        encode_short_message(
            replace(whole, esm_class=HAS_HEADER, text=bytes((5, 0, 3, reference, len(parts), number)) + part)
        )
        for number, part in enumerate(parts, 1)
    ]
