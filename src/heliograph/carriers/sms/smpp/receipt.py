"""Parses deliver_sm and data_sm: delivery receipts, in TLVs or text, and inbound messages."""

import hashlib
import re
from functools import lru_cache
from typing import Any

from heliograph.carriers.sms.smpp.pdu import (
    MESSAGE_STATE,
    NETWORK_ERROR_CODE,
    RECEIPTED_MESSAGE_ID,
    SAR_MSG_REF_NUM,
    SAR_SEGMENT_SEQNUM,
    SAR_TOTAL_SEGMENTS,
    ShortMessage,
    decode_id,
)
from heliograph.domain.delivery.outcome import CarrierReport, IncomingText, Report, TextPart
from heliograph.domain.phones.phone import to_e164
from heliograph.domain.phones.sms_octets import UCS2, from_octets
from heliograph.domain.setup.carrier_kinds import IdForm

# Keyed by the first letters of the state, because carriers spell the rest differently: DELIVRD, DELIVERED.
STATUS_BY_STATE_PREFIX: dict[str, tuple[str, str]] = {
    "SCHED": ("sent", "scheduled"),
    "ENROU": ("sent", "on its way"),
    "BUFFE": ("sent", "waiting at the carrier"),
    "BUFFR": ("sent", "waiting at the carrier"),
    "ACCEP": ("sent", "accepted"),
    "DELIV": ("delivered", "delivered"),
    "EXPIR": ("failed", "expired before it could be delivered"),
    "DELET": ("failed", "deleted by the carrier"),
    "UNDEL": ("failed", "could not be delivered"),
    "FAILE": ("failed", "could not be delivered"),
    "REJEC": ("failed", "rejected"),
    "SKIPP": ("failed", "skipped by the carrier"),
    "UNKNO": ("failed", "the carrier lost track of it"),  # a final state in SMPP, but we still accept a later DELIVRD
}
MESSAGE_STATE_NAMES = (
    *("SCHEDULED", "ENROUTE", "DELIVRD", "EXPIRED", "DELETED"),
    *("UNDELIV", "ACCEPTD", "UNKNOWN", "REJECTD", "SKIPPED"),
)

# Bits of esm_class with the type of a deliver_sm, and their values for receipts and intermediate notifications.
_TYPE_BITS, _RECEIPT_TYPES = 0x3C, (0x04, 0x20)
_HAS_USER_DATA_HEADER = 0x40  # esm_class bit: the text begins with a user data header, as in parts of a long message
# Header elements (id, length) of a part, with an 8-bit and with a 16-bit reference.
_CONCATENATION_ELEMENTS = ((0x00, 3), (0x08, 4))
PARTS_MAX = 255


def _in_any_case(pattern: str) -> str:
    """Return a pattern that matches lower and upper case, because matching it takes a third less time than `re.I`."""
    return re.sub("[a-z]", lambda letter: f"[{letter[0]}{letter[0].upper()}]", pattern)


_TEXT_FIELD_START = re.compile(_in_any_case("text:") + r"(?<=\b.....)")
_FIELD_NAMES = _in_any_case("id|sub|dlvrd|submit[ _]?date|done[ _]?date|stat|err")
# Field name and value; the value ends at a space, `,` or `;`.
_FIELD = re.compile(rf"(?<![A-Za-z_])({_FIELD_NAMES}):[ ]*((?!(?:{_FIELD_NAMES}):)[!-+\--:<-~]{{0,64}})")
_DIGITS_BY_BASE = {10: re.compile("[0-9]+"), 16: re.compile("[0-9A-Fa-f]+")}


def normalize_submit_id(id_: str, form: IdForm) -> str:
    """Normalize an id of submit_sm_resp for storage: to decimal if the carrier's receipts use another base.

    Leading zeros are removed and letters lower-cased, because receipts often differ in these.
    """
    return _normalize_id(id_) if form == "same" else _to_decimal(id_, 10 if form == "hex" else 16)


def parse_receipt(message: ShortMessage, form: IdForm) -> CarrierReport | None:
    """Parse a delivery receipt; None if the message is not a receipt, or has no id or state."""
    id_in_tlv = decode_id(message.tlvs[RECEIPTED_MESSAGE_ID]) if RECEIPTED_MESSAGE_ID in message.tlvs else ""
    # The text alone is not trusted, because anyone can send an SMS that looks like a receipt.
    if not id_in_tlv and message.esm_class & _TYPE_BITS not in _RECEIPT_TYPES:
        return None
    fields = _receipt_fields(message)
    id_in_text = fields.get("id", "")
    state = _message_state(message, fields)
    if not (id_in_tlv or id_in_text) or not state:
        return None
    # If the two ids differ, the TLV has the format of submit_sm_resp
    if id_in_tlv and id_in_text and _normalize_id(id_in_tlv) != _normalize_id(id_in_text):
        id_ = normalize_submit_id(id_in_tlv, form)
    else:
        id_ = id_in_tlv or id_in_text
        id_ = _normalize_id(id_) if form == "same" else _to_decimal(id_, 16 if form == "hex" else 10)
    return CarrierReport(id_, _build_report(state, message, fields))


def parse_incoming_text(message: ShortMessage) -> IncomingText | TextPart | None:
    """Parse an inbound message or one part of a long one; None if the message is a receipt.

    SMPP has no ids for inbound messages, so the id is a hash: a repeated message has the same bytes.
    """
    if message.esm_class & _TYPE_BITS in _RECEIPT_TYPES:
        return None
    header, octets = _split_header(message)
    if concatenation := _read_concatenation(message, header):
        reference, total, number = concatenation
        return TextPart(
            sender=to_e164(message.source.value),
            to=to_e164(message.destination.value),
            reference=reference,
            total=total,
            number=number,
            coding=message.data_coding,
            octets=octets,
        )
    identity = b"\0".join((message.source.value.encode(), message.destination.value.encode(), message.text_bytes))
    return IncomingText(
        id=hashlib.sha256(identity).hexdigest(),
        sender=to_e164(message.source.value),
        to=to_e164(message.destination.value),
        text=from_octets(message.data_coding, octets),
        is_unnamed=True,
    )


def _split_header(message: ShortMessage) -> tuple[bytes, bytes]:
    """Return a message's user data header without its length byte, and the text after it."""
    if not message.esm_class & _HAS_USER_DATA_HEADER or not message.text_bytes:
        return b"", message.text_bytes
    end = 1 + message.text_bytes[0]
    return message.text_bytes[1:end], message.text_bytes[end:]


def _read_concatenation(message: ShortMessage, header: bytes) -> tuple[str, int, int] | None:
    """Return (reference, number of parts, position of this part); None if the message is not split.

    The reference is prefixed with where it comes from (the id of a header element, or `sar` for TLVs), because the same
    number from two places means two different messages.
    """
    concatenation = None
    while len(header) >= 2:
        id_, length = header[0], header[1]
        value, header = header[2 : 2 + length], header[2 + length :]
        if (id_, len(value)) in _CONCATENATION_ELEMENTS:
            concatenation = f"{id_}:{int.from_bytes(value[:-2])}", value[-2], value[-1]
    if concatenation is None and SAR_MSG_REF_NUM in message.tlvs:
        reference, total, number = (
            int.from_bytes(message.tlvs.get(tag, b""))
            for tag in (SAR_MSG_REF_NUM, SAR_TOTAL_SEGMENTS, SAR_SEGMENT_SEQNUM)
        )
        concatenation = f"sar:{reference}", total, number
    if concatenation and concatenation[1] > 1 and 1 <= concatenation[2] <= concatenation[1] <= PARTS_MAX:
        return concatenation
    return None


def _receipt_fields(message: ShortMessage) -> dict[str, str]:
    """Return the receipt's fields before its field `text`, which is excluded because it quotes the message."""
    text = message.text_bytes.decode("utf-16-be" if message.data_coding == UCS2 else "latin-1", "replace")
    fields = _FIELD.findall(_TEXT_FIELD_START.split(text, 1)[0])
    return {_normalize_field_name(key): value for key, value in reversed(fields)}  # the first value of each name counts


@lru_cache(maxsize=64)  # few distinct spellings occur
def _normalize_field_name(key: str) -> str:
    return key.lower().replace(" ", "").replace("_", "")


def _message_state(message: ShortMessage, fields: dict[str, str]) -> str:
    """Return the message state from the TLV, or else from the text; empty if missing."""
    number = int.from_bytes(message.tlvs.get(MESSAGE_STATE) or b"\xff")
    return MESSAGE_STATE_NAMES[number] if number < len(MESSAGE_STATE_NAMES) else fields.get("stat", "").upper()


def _build_report(state: str, message: ShortMessage, fields: dict[str, str]) -> Report:
    status, description = STATUS_BY_STATE_PREFIX.get(state[:5], ("sent", f"in a carrier-specific state: {state}"))
    network_error = message.tlvs.get(NETWORK_ERROR_CODE, b"")
    optional: dict[str, Any] = {
        "state": state,
        "err": fields.get("err") or (str(int.from_bytes(network_error[1:3])) if len(network_error) == 3 else None),
        "submit_date": fields.get("submitdate"),
        "done_date": fields.get("donedate"),
    }
    detail = {"carrier": "smpp", "text": description, **{name: value for name, value in optional.items() if value}}
    return Report(status=status, detail=detail)


def _to_decimal(id_: str, base: int) -> str:
    return str(int(id_, base)) if _DIGITS_BY_BASE[base].fullmatch(id_) else _normalize_id(id_)


def _normalize_id(id_: str) -> str:
    return id_.lower().lstrip("0") or id_[:1]
