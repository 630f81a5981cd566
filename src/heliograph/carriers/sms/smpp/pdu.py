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


class MalformedPdu(Exception):
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
    validity_period: str = ""  # validity period in SMPP format; empty: the carrier's default
    registered_delivery: int = 0
    data_coding: int = 0
    text: bytes = b""
    tlvs: Mapping[int, bytes] = {}

    @property
    def text_bytes(self) -> bytes:
        """Return the text bytes from short_message or message_payload."""
        return self.text or self.tlvs.get(MESSAGE_PAYLOAD, b"")


def encode_pdu(command: int, sequence: int, body: bytes = b"", status: int = 0) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), command, status, sequence) + body


class PduReader:
    """Splits the received byte stream into PDUs."""

    def __init__(self) -> None:
        self._partial = b""

    def feed(self, data: bytes) -> Iterator[Pdu]:
        """Yield the PDUs that these bytes complete; raises MalformedPdu if a PDU's length is invalid."""
        data = self._partial + data
        start = 0
        while len(data) - start >= _HEADER.size:
            length, command, status, sequence = _HEADER.unpack_from(data, start)
            if not _HEADER.size <= length <= PDU_MAX:
                raise MalformedPdu
            if len(data) - start < length:
                break
            yield Pdu(command, status, sequence, data[start + _HEADER.size : start + length])
            start += length
        self._partial = data[start:]


def encode_bind(system_id: str, password: str, system_type: str) -> bytes:
    """Return the body of bind_transceiver for SMPP 3.4."""
    return _c_string(system_id) + _c_string(password) + _c_string(system_type) + b"\x34\0\0\0"


def _c_string(text: str) -> bytes:
    _reject_nul(text)
    return text.encode() + b"\0"


def _reject_nul(text: str) -> None:
    if "\0" in text:
        raise ValueError("a NUL in what is sent as a C string")


def encode_short_message(message: ShortMessage) -> bytes:
    source, destination = message.source, message.destination
    _reject_nul(source.value + destination.value + message.validity_period)
    # The zeros are service_type; protocol_id, priority_flag and schedule_delivery_time; replace_if_present_flag and
    # sm_default_msg_id; and the terminators of C strings.
    body = b"\0%c%c%b\0%c%c%b\0%c\0\0\0%b\0%c\0%c\0%c%b" % (
        source.ton,
        source.npi,
        source.value.encode(),
        destination.ton,
        destination.npi,
        destination.value.encode(),
        message.esm_class,
        message.validity_period.encode(),
        message.registered_delivery,
        message.data_coding,
        len(message.text),
        message.text,
    )
    if message.tlvs:
        body += b"".join([_TLV.pack(tag, len(value)) + value for tag, value in message.tlvs.items()])
    return body


def decode_short_message(body: bytes) -> ShortMessage:
    """Decode the body of submit_sm or deliver_sm; raises MalformedPdu if it is invalid."""
    try:
        offset = body.index(0) + 1
        source, offset = _read_address(body, offset)
        destination, offset = _read_address(body, offset)
        esm_class, offset = body[offset], offset + 3
        validity_start = body.index(0, offset) + 1  # after schedule_delivery_time
        offset = body.index(0, validity_start) + 1
        validity = body[validity_start : offset - 1].decode("latin-1")
        registered, _, coding, _, length = body[offset : offset + 5]
    except (IndexError, ValueError):
        raise MalformedPdu from None
    end = offset + 5 + length
    if end > len(body):
        raise MalformedPdu
    return ShortMessage(
        source=source,
        destination=destination,
        esm_class=esm_class,
        validity_period=validity,
        registered_delivery=registered,
        data_coding=coding,
        text=body[offset + 5 : end],
        tlvs=dict(_read_tlvs(body, end)),
    )


def decode_data_sm(body: bytes) -> ShortMessage:
    """Decode the body of data_sm, which has its text in a TLV; raises MalformedPdu if the body is invalid."""
    try:
        source, offset = _read_address(body, body.index(0) + 1)
        destination, offset = _read_address(body, offset)
        esm_class, registered, coding = body[offset : offset + 3]
    except (IndexError, ValueError):
        raise MalformedPdu from None
    return ShortMessage(
        source=source,
        destination=destination,
        esm_class=esm_class,
        registered_delivery=registered,
        data_coding=coding,
        tlvs=dict(_read_tlvs(body, offset + 3)),
    )


def _read_address(body: bytes, offset: int) -> tuple[SmppAddress, int]:
    end = body.index(0, offset + 2)
    return SmppAddress(body[offset], body[offset + 1], body[offset + 2 : end].decode("latin-1")), end + 1


def _read_tlvs(body: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    """Yield the complete TLVs. A truncated TLV is ignored, because some carriers append garbage."""
    while offset + _TLV.size <= len(body):
        tag, length = _TLV.unpack_from(body, offset)
        offset += _TLV.size + length
        if offset <= len(body):
            yield tag, body[offset - length : offset]


def decode_id(octets: bytes) -> str:
    """Decode a message id from submit_sm_resp or a TLV; it ends before the first NUL, if any."""
    return octets.partition(b"\0")[0][:ID_MAX].decode("latin-1").strip()
