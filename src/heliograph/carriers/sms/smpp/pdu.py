"""SMPP 3.4 encoding: PDU framing, and the bodies that a transceiver sends and receives."""

import struct
from collections.abc import Iterator, Mapping

import msgspec

PDU_MAX = 70_000  # bytes: a message_payload of 64 KiB with all other fields
SEQUENCE_MAX = 0x7FFFFFFF
ID_MAX = 64  # bytes of a message id

RECEIPTED_MESSAGE_ID = 0x001E
SAR_MSG_REF_NUM = 0x020C
SAR_TOTAL_SEGMENTS = 0x020E
SAR_SEGMENT_SEQNUM = 0x020F
NETWORK_ERROR_CODE = 0x0423
MESSAGE_PAYLOAD = 0x0424
MESSAGE_STATE = 0x0427

_HEADER = struct.Struct(">IIII")
_TLV = struct.Struct(">HH")


class Malformed(Exception):
    """Raised for bytes that are not a valid PDU."""


class Pdu(msgspec.Struct, frozen=True):
    command: int
    status: int
    sequence: int
    body: bytes


class SmppAddress(msgspec.Struct, frozen=True):
    ton: int  # type of number (TON)
    npi: int  # numbering plan indicator (NPI)
    value: str


class ShortMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The body of submit_sm, deliver_sm or data_sm."""

    source: SmppAddress
    destination: SmppAddress
    esm_class: int = 0
    validity: str = ""  # validity period in SMPP format; empty: the carrier's default
    registered: int = 0
    coding: int = 0
    text: bytes = b""
    tlvs: Mapping[int, bytes] = {}

    @property
    def words(self) -> bytes:
        """Return the text bytes from short_message or message_payload."""
        return self.text or self.tlvs.get(MESSAGE_PAYLOAD, b"")


def encode(command: int, sequence: int, body: bytes = b"", status: int = 0) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), command, status, sequence) + body


class Frames:
    """Splits the received byte stream into PDUs."""

    def __init__(self) -> None:
        self._partial = b""

    def feed(self, octets: bytes) -> Iterator[Pdu]:
        """Yield the PDUs completed by these bytes; raises Malformed at an invalid length."""
        octets = self._partial + octets
        start = 0
        while len(octets) - start >= _HEADER.size:
            length, command, status, sequence = _HEADER.unpack_from(octets, start)
            if not _HEADER.size <= length <= PDU_MAX:
                raise Malformed
            if len(octets) - start < length:
                break
            yield Pdu(command, status, sequence, octets[start + _HEADER.size : start + length])
            start += length
        self._partial = octets[start:]


def bind_body(system_id: str, password: str, system_type: str) -> bytes:
    """Return the body of bind_transceiver for SMPP 3.4."""
    return _c_string(system_id) + _c_string(password) + _c_string(system_type) + b"\x34\0\0\0"


def _c_string(text: str) -> bytes:
    _refuse_nul(text)
    return text.encode() + b"\0"


def _refuse_nul(text: str) -> None:
    if "\0" in text:
        raise ValueError("a NUL in what is sent as a C string")


def encode_short_message(sm: ShortMessage) -> bytes:
    by, to = sm.source, sm.destination
    _refuse_nul(by.value + to.value + sm.validity)
    # The zeros are service_type; protocol_id, priority_flag and schedule_delivery_time; replace_if_present_flag and
    # sm_default_msg_id; and the terminators of C strings.
    body = b"\0%c%c%b\0%c%c%b\0%c\0\0\0%b\0%c\0%c\0%c%b" % (
        *(by.ton, by.npi, by.value.encode(), to.ton, to.npi, to.value.encode(), sm.esm_class),
        *(sm.validity.encode(), sm.registered, sm.coding, len(sm.text), sm.text),
    )
    return body + b"".join([_TLV.pack(tag, len(value)) + value for tag, value in sm.tlvs.items()]) if sm.tlvs else body


def decode_short_message(body: bytes) -> ShortMessage:
    """Decode the body of submit_sm or deliver_sm; raises Malformed."""
    try:
        at = body.index(0) + 1
        source, at = _read_address(body, at)
        destination, at = _read_address(body, at)
        esm_class, at = body[at], at + 3
        begin = body.index(0, at) + 1  # after schedule_delivery_time
        at = body.index(0, begin) + 1
        validity = body[begin : at - 1].decode("latin-1")
        registered, _, coding, _, length = body[at : at + 5]
    except (IndexError, ValueError):
        raise Malformed from None
    end = at + 5 + length
    if end > len(body):
        raise Malformed
    return ShortMessage(
        source=source,
        destination=destination,
        esm_class=esm_class,
        validity=validity,
        registered=registered,
        coding=coding,
        text=body[at + 5 : end],
        tlvs=dict(_read_tlvs(body, end)),
    )


def decode_data(body: bytes) -> ShortMessage:
    """Decode the body of data_sm, which has its text in a TLV; raises Malformed."""
    try:
        source, at = _read_address(body, body.index(0) + 1)
        destination, at = _read_address(body, at)
        esm_class, registered, coding = body[at : at + 3]
    except (IndexError, ValueError):
        raise Malformed from None
    return ShortMessage(
        source=source,
        destination=destination,
        esm_class=esm_class,
        registered=registered,
        coding=coding,
        tlvs=dict(_read_tlvs(body, at + 3)),
    )


def _read_address(body: bytes, at: int) -> tuple[SmppAddress, int]:
    end = body.index(0, at + 2)
    return SmppAddress(body[at], body[at + 1], body[at + 2 : end].decode("latin-1")), end + 1


def _read_tlvs(body: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    """Yield the complete TLVs; a truncated one is ignored, because some carriers append garbage."""
    while at + _TLV.size <= len(body):
        tag, length = _TLV.unpack_from(body, at)
        at += _TLV.size + length
        if at <= len(body):
            yield tag, body[at - length : at]


def read_id(octets: bytes) -> str:
    """Decode a message id from submit_sm_resp or a TLV, up to the NUL if present."""
    return octets.partition(b"\0")[0][:ID_MAX].decode("latin-1").strip()
