"""SMPP PDUs byte by byte: golden files, two independent codecs, and hostile input."""

from pathlib import Path
from typing import Any

import pytest
from aiosmpplib import protocol as aiosmpp
from aiosmpplib.state import NPI, TON, OptionalParam, PhoneNumber, SmppCommandStatus
from hypothesis import example, given
from hypothesis import strategies as st
from smpplib import consts, smpp

from heliograph.carriers.sms.smpp import command, status
from heliograph.carriers.sms.smpp.compose import build_submit_bodies, sender_address
from heliograph.carriers.sms.smpp.pdu import (
    MESSAGE_PAYLOAD,
    MESSAGE_STATE,
    NETWORK_ERROR_CODE,
    PDU_MAX,
    RECEIPTED_MESSAGE_ID,
    MalformedPdu,
    Pdu,
    PduReader,
    ShortMessage,
    SmppAddress,
    decode_id,
    decode_short_message,
    encode_bind,
    encode_pdu,
    encode_short_message,
)
from heliograph.carriers.sms.smpp.receipt import parse_receipt
from heliograph.domain.setup.carrier_kinds import LongTextMode

GOLDEN = Path(__file__).parent / "golden" / "smpp"
PHONE = "+447700900123"
LONG = "a" * 152 + "€" + "b" * 20


def golden(name: str) -> bytes:
    lines = (GOLDEN / f"{name}.hex").read_text("utf-8").splitlines()
    return bytes.fromhex(" ".join(line.partition("#")[0] for line in lines))


def parse_one(octets: bytes) -> Pdu:
    (pdu,) = PduReader().feed(octets)
    return pdu


def submits(sequence: int, sender: str, text: str, long: LongTextMode = "udh") -> list[bytes]:
    bodies = build_submit_bodies(sender_address(sender), PHONE, text, reference=0x5C, long_mode=long)
    return [encode_pdu(command.SUBMIT_SM, sequence + position, body) for position, body in enumerate(bodies)]


# -- golden files ------------------------------------------------------------------------------------------

WRITTEN: dict[str, bytes] = {
    "bind_transceiver": encode_pdu(command.BIND_TRANSCEIVER, 1, encode_bind("acme", "s3cret", "SMPP")),
    "submit_sm_gsm7": submits(2, "ACME", "Hi @ € _")[0],
    "submit_sm_ucs2": submits(3, "+447700900999", "Grüße 😀 ж")[0],
    "submit_sm_short_code": submits(4, "60606", "Hi")[0],
    "submit_sm_no_sender": submits(5, "", "Hi")[0],
    "submit_sm_part_1": submits(6, "ACME", LONG)[0],
    "submit_sm_part_2": submits(6, "ACME", LONG)[1],
    "submit_sm_payload": submits(8, "ACME", LONG, "payload")[0],
    "deliver_sm_resp": encode_pdu(command.DELIVER_SM | command.RESP, 1, b"\0"),
    "deliver_sm_resp_again": encode_pdu(command.DELIVER_SM | command.RESP, 2, b"\0", status.RX_T_APPN),
    "enquire_link": encode_pdu(command.ENQUIRE_LINK, 9),
    "enquire_link_resp": encode_pdu(command.ENQUIRE_LINK | command.RESP, 9),
    "unbind": encode_pdu(command.UNBIND, 10),
    "unbind_resp": encode_pdu(command.UNBIND | command.RESP, 10),
    "generic_nack": encode_pdu(command.GENERIC_NACK, 11, status=status.RINVCMDID),
}
READ = (
    *("bind_transceiver_resp", "submit_sm_resp", "submit_sm_resp_throttled"),
    *("deliver_sm_receipt_text", "deliver_sm_receipt_tlvs", "deliver_sm_inbound"),
)


@pytest.mark.parametrize("name", WRITTEN)
def test_pdu_is_encoded_as_in_the_golden_file(name: str) -> None:
    assert WRITTEN[name].hex(" ") == golden(name).hex(" ")


def test_pdu_is_decoded_from_the_golden_file() -> None:
    assert parse_one(golden("bind_transceiver_resp")).status == 0
    accepted = parse_one(golden("submit_sm_resp"))
    assert (accepted.command, accepted.sequence, decode_id(accepted.body)) == (0x80000004, 2, "7f3a0001")
    assert parse_one(golden("submit_sm_resp_throttled")) == Pdu(0x80000004, 0x58, 3, b"")
    assert decode_short_message(parse_one(golden("deliver_sm_receipt_tlvs")).body) == ShortMessage(
        source=SmppAddress(1, 1, "447700900123"),
        destination=SmppAddress(5, 0, "ACME"),
        esm_class=4,
        tlvs={RECEIPTED_MESSAGE_ID: b"7f3a0002\0", MESSAGE_STATE: b"\x05", NETWORK_ERROR_CODE: b"\x03\0\x1b"},
    )
    states = {}
    for name in ("receipt_text", "receipt_tlvs"):
        receipt = parse_receipt(decode_short_message(parse_one(golden(f"deliver_sm_{name}")).body), "same")
        assert receipt
        states[receipt[0]] = receipt[1].detail["state"]
    assert states == {"7f3a0001": "DELIVRD", "7f3a0002": "UNDELIV"}
    assert parse_receipt(decode_short_message(parse_one(golden("deliver_sm_inbound")).body), "same") is None


def test_every_golden_file_is_used() -> None:
    assert {path.stem for path in GOLDEN.glob("*.hex")} == {*WRITTEN, *READ}


@pytest.mark.parametrize("name", [name for name in [*WRITTEN, *READ] if name.startswith(("submit_sm", "deliver_sm"))])
def test_short_message_is_read_back_unchanged(name: str) -> None:
    body = parse_one(golden(name)).body
    if len(body) > 20:
        assert encode_short_message(decode_short_message(body)) == body


# -- foreign codecs ----------------------------------------------------------------------------------------


class Sequence:
    sequence = 0

    def next_sequence(self) -> int:
        return 1


def smpplib_reads(octets: bytes) -> Any:
    return smpp.parse_pdu(octets, client=Sequence(), allow_unknown_opt_params=True)


def source(ton: int, npi: int, address: bytes) -> dict[str, Any]:
    return {"source_addr_ton": ton, "source_addr_npi": npi, "source_addr": address}


FIELDS = {"dest_addr_ton": 1, "dest_addr_npi": 1, "destination_addr": b"447700900123", "registered_delivery": 1}
LETTERS = FIELDS | source(consts.SMPP_TON_ALNUM, 0, b"ACME")
PART_1 = b"\x05\0\x03\x5c\x02\x01" + b"a" * 152
PART_2 = b"\x05\0\x03\x5c\x02\x02\x1be" + b"b" * 20
SMPPLIB: dict[str, dict[str, Any]] = {
    "bind_transceiver": {"system_id": b"acme", "password": b"s3cret", "system_type": b"SMPP", "interface_version": 52},
    "submit_sm_gsm7": LETTERS | {"data_coding": 0, "short_message": b"Hi \0 \x1be \x11"},
    "submit_sm_ucs2": FIELDS
    | source(1, 1, b"447700900999")
    | {"data_coding": consts.SMPP_ENCODING_ISO10646, "short_message": "Grüße 😀 ж".encode("utf-16-be")},
    "submit_sm_short_code": FIELDS | source(consts.SMPP_TON_NWSPEC, 0, b"60606"),
    "submit_sm_part_1": LETTERS | {"esm_class": consts.SMPP_GSMFEAT_UDHI, "short_message": PART_1},
    "submit_sm_part_2": LETTERS | {"esm_class": consts.SMPP_GSMFEAT_UDHI, "short_message": PART_2},
    "submit_sm_payload": LETTERS | {"sm_length": 0, "message_payload": b"a" * 152 + b"\x1be" + b"b" * 20},
    "enquire_link": {"command": "enquire_link"},
    "unbind": {"command": "unbind"},
}


@pytest.mark.parametrize("name", SMPPLIB)
def test_pdu_of_ours_is_read_by_smpplib(name: str) -> None:
    observed = smpplib_reads(WRITTEN[name])
    assert {field: getattr(observed, field) for field in SMPPLIB[name]} == SMPPLIB[name]
    assert observed.sequence == parse_one(WRITTEN[name]).sequence


@pytest.mark.parametrize("name", [name for name in SMPPLIB if "short_message" in SMPPLIB[name]])
def test_pdu_of_smpplib_equals_ours(name: str) -> None:
    fields = SMPPLIB[name]
    texts = {field: value.decode() for field, value in fields.items() if field.endswith("_addr")}
    reference_pdu = smpp.make_pdu("submit_sm", client=Sequence(), **fields | texts)
    reference_pdu.sequence = parse_one(golden(name)).sequence
    assert reference_pdu.generate().hex(" ") == golden(name).hex(" ")


def test_receipt_of_smpplib_is_read() -> None:
    reference_pdu = smpp.make_pdu(
        "deliver_sm",
        client=Sequence(),
        source_addr="447700900123",
        destination_addr="ACME",
        esm_class=4,
        short_message=b"id:42 sub:001 dlvrd:001 submit date:2611150930 done date:2611150931 stat:EXPIRED err:007 text:",
        receipted_message_id="42",
        message_state=3,
    )
    receipt = parse_receipt(decode_short_message(parse_one(reference_pdu.generate()).body), "same")
    assert receipt
    assert (receipt[0], receipt[1].status, receipt[1].detail["err"]) == ("42", "failed", "007")


ACME = ("ACME", TON.ALPHANUMERIC, NPI.UNKNOWN)


def aiosmpplib_reads(octets: bytes) -> Any:
    return aiosmpp.SubmitSm.from_pdu(octets, aiosmpp.SmppMessage.parse_header(octets), "gsm0338")


@pytest.mark.parametrize(
    ("name", "text", "sender"),
    [
        ("submit_sm_gsm7", "Hi @ € _", ACME),
        ("submit_sm_ucs2", "Grüße 😀 ж", ("447700900999", TON.INTERNATIONAL, NPI.ISDN)),
        ("submit_sm_part_1", "a" * 152, ACME),
        ("submit_sm_part_2", "€" + "b" * 20, ACME),
        ("submit_sm_payload", LONG, ACME),
    ],
)
def test_pdu_of_ours_is_read_by_aiosmpplib(name: str, text: str, sender: tuple[Any, ...]) -> None:
    observed = aiosmpplib_reads(WRITTEN[name])
    assert (observed.short_message or observed.message_payload) == text
    assert (observed.source.number, observed.source.ton, observed.source.npi) == sender
    assert (observed.destination.number, observed.registered_delivery) == ("447700900123", 1)
    if "part" in name:
        assert observed.get_segmentation_data() == (0x5C, int(name[-1]), 2)


def test_pdu_of_aiosmpplib_equals_ours() -> None:
    our_address, theirs = PhoneNumber(*ACME), PhoneNumber("447700900123", TON.INTERNATIONAL, NPI.ISDN)
    plain = aiosmpp.SubmitSm(sequence_num=2, short_message="Hi @ € _", source=our_address, destination=theirs)
    assert plain.pdu().hex(" ") == golden("submit_sm_gsm7").hex(" ")
    payload = aiosmpp.SubmitSm(sequence_num=8, message_payload=LONG, source=our_address, destination=theirs)
    assert payload.pdu().hex(" ") == golden("submit_sm_payload").hex(" ")
    bind = aiosmpp.BindTransceiver(sequence_num=1, system_id="acme", password="s3cret", system_type="SMPP")
    assert bind.pdu().hex(" ") == golden("bind_transceiver").hex(" ")
    nack = aiosmpp.GenericNack(sequence_num=11, command_status=SmppCommandStatus.ESME_RINVCMDID)
    assert nack.pdu().hex(" ") == golden("generic_nack").hex(" ")


def test_receipt_of_aiosmpplib_is_read() -> None:
    line = aiosmpp.DeliverSm.encode_receipt(
        {"id": "9f", "sub": 1, "stat": "REJECTD", "err": 11, "text": "stat:DELIVRD"}
    )
    reference_pdu = aiosmpp.DeliverSm(
        sequence_num=1,
        short_message=line,
        source=PhoneNumber("447700900123"),
        destination=PhoneNumber("ACME"),
        esm_class=4,
        optional_params=[OptionalParam(RECEIPTED_MESSAGE_ID, "9f")],
    )
    receipt = parse_receipt(decode_short_message(parse_one(reference_pdu.pdu()).body), "same")
    assert receipt
    assert (receipt[0], receipt[1].status, receipt[1].detail["state"]) == ("9f", "failed", "REJECTD")


# -- octets that mean no good ------------------------------------------------------------------------------


@given(st.binary(max_size=400))
@example(parse_one(golden("deliver_sm_receipt_tlvs")).body[:-1])
@example(b"\0" * 17)
@example(b"\0" * 16 + b"\xff")
def test_any_body_is_read_or_malformed(body: bytes) -> None:
    try:
        sm = decode_short_message(body)
    except MalformedPdu:
        return
    parse_receipt(sm, "same")


@given(st.sampled_from([*WRITTEN, *READ]), st.data())
def test_a_changed_pdu_is_read_or_malformed(name: str, data: st.DataObject) -> None:
    octets = bytearray(golden(name))
    for _ in range(data.draw(st.integers(1, 4))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    try:
        for pdu in PduReader().feed(bytes(octets)):
            parse_receipt(decode_short_message(pdu.body), "decimal")
    except MalformedPdu:
        pass


@given(st.lists(st.sampled_from([*WRITTEN]), max_size=5), st.integers(1, 40))
def test_pdus_are_split_alike_for_any_division_of_the_bytes(names: list[str], size: int) -> None:
    octets = b"".join(WRITTEN[name] for name in names)
    frames = PduReader()
    pdus = [pdu for start in range(0, len(octets), size) for pdu in frames.feed(octets[start : start + size])]
    assert b"".join(encode_pdu(pdu.command, pdu.sequence, pdu.body, pdu.status) for pdu in pdus) == octets


@pytest.mark.parametrize("length", [0, 15, PDU_MAX + 1, 0xFFFFFFFF])
def test_impossible_length_ends_reading_after_the_valid_pdus(length: int) -> None:
    feed = PduReader().feed(WRITTEN["unbind"] + length.to_bytes(4) + bytes(12))
    assert next(feed).command == command.UNBIND
    with pytest.raises(MalformedPdu):
        next(feed)


def test_truncated_tlv_is_ignored() -> None:
    body = parse_one(golden("deliver_sm_receipt_tlvs")).body
    assert NETWORK_ERROR_CODE not in decode_short_message(body[:-1]).tlvs
    assert MESSAGE_PAYLOAD not in decode_short_message(body + b"\x04\x24\xff\xff" + b"x" * 10).tlvs


def test_nul_character_is_not_sent() -> None:
    with pytest.raises(ValueError, match="a NUL") as caught:
        encode_bind("acme", "s3\0cret", "")
    assert "cret" not in str(caught.value)
    assert decode_id(b"abc\0def") == "abc"


# -- statuses ----------------------------------------------------------------------------------------------


def test_status_table_is_complete() -> None:
    theirs = {
        value: name.removeprefix("SMPP_") for name, value in vars(consts).items() if name.startswith("SMPP_ESME_R")
    }
    assert {number: name for number, (name, _, _) in status.STATUS_TABLE.items()} == theirs


@pytest.mark.parametrize(
    ("number", "verdict", "words"),
    [
        (0x00, "accepted", "accepted (ESME_ROK)"),
        (0x0B, "refused", "invalid destination address (ESME_RINVDSTADR)"),
        (0x14, "deferred", "message queue full (ESME_RMSGQFUL)"),
        (0x58, "throttled", "throttled: more messages than allowed (ESME_RTHROTTLED)"),
        (0x04, "unbound", "not bound for this command (ESME_RINVBNDSTS)"),
        (0x0400, "deferred", "a carrier-specific error (0x00000400)"),
    ],
)
def test_status_gives_the_expected_outcome(number: int, verdict: str, words: str) -> None:
    assert (status.verdict_for(number), status.describe(number)) == (verdict, words)
