"""Encoding of SMS texts, parts and senders, and parsing of receipts."""

from typing import Any

import gsm0338  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.carriers.sms.smpp.compose import sender_address
from heliograph.carriers.sms.smpp.pdu import (
    MESSAGE_PAYLOAD,
    MESSAGE_STATE,
    NETWORK_ERROR_CODE,
    RECEIPTED_MESSAGE_ID,
    ShortMessage,
    SmppAddress,
)
from heliograph.carriers.sms.smpp.receipt import MESSAGE_STATE_NAMES, normalize_submit_id, parse_receipt
from heliograph.carriers.sms.smpp.text import encode_text, fits_single_part, split_into_parts
from heliograph.domain.phones.gsm import ALPHABET, EXTENSION, count_segments
from heliograph.domain.phones.sms_octets import GSM7, UCS2
from heliograph.domain.setup.carrier_kinds import IdForm

FOREIGN = gsm0338.Codec()

# -- texts -------------------------------------------------------------------------------------------------


def test_gsm_alphabet_equals_a_foreign_codec() -> None:
    assert encode_text(ALPHABET + EXTENSION) == (GSM7, FOREIGN.encode(ALPHABET + EXTENSION)[0])


def from_octets(coding: int, octets: bytes) -> str:
    return str(FOREIGN.decode(octets)[0]) if coding == GSM7 else octets.decode("utf-16-be")


gsm_texts = st.text(st.sampled_from(ALPHABET + EXTENSION * 5), max_size=700)
wide_texts = st.text(st.sampled_from("aж😀€\U00010000\U0010ffff\ud7ff\ue000"), max_size=300)


@given(st.one_of(gsm_texts, wide_texts, st.text(st.characters(exclude_categories=["Cs"]), max_size=300)))
def test_text_parts_split_no_character_and_match_the_count(text: str) -> None:
    coding, octets = encode_text(text)
    counted = count_segments(text)
    assert {GSM7: "gsm7", UCS2: "ucs2"}[coding] == counted.encoding
    assert fits_single_part(coding, octets) == (counted.udh == 1)
    parts = split_into_parts(coding, octets)
    if counted.udh > 1:
        assert len(parts) == counted.udh
    assert "".join(from_octets(coding, part) for part in parts) == text  # each part decodes on its own
    assert all(len(part) <= {GSM7: 153, UCS2: 134}[coding] for part in parts)


def test_lone_surrogate_is_replaced() -> None:
    assert encode_text("ж\ud800") == (UCS2, "ж?".encode("utf-16-be"))


# -- senders -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sender", "address"),
    [
        ("ACME", SmppAddress(5, 0, "ACME")),
        ("Acme & Co.", SmppAddress(5, 0, "Acme & Co.")),
        ("Heliograph Messaging", SmppAddress(5, 0, "Heliograph")),  # the air interface has 11 places
        ("Zürich", SmppAddress(5, 0, "Zrich")),
        ("+447700900999", SmppAddress(1, 1, "447700900999")),
        ("447700900999", SmppAddress(1, 1, "447700900999")),
        ("60606", SmppAddress(3, 0, "60606")),
        ("12345678", SmppAddress(3, 0, "12345678")),
        ("", SmppAddress(0, 0, "")),
        ("\0\0", SmppAddress(0, 0, "")),
    ],
)
def test_sender_gives_its_address_type(sender: str, address: SmppAddress) -> None:
    assert sender_address(sender) == address


# -- receipts ----------------------------------------------------------------------------------------------


def delivered(text: str = "", *, esm_class: int = 4, coding: int = 0, **tlvs: bytes) -> ShortMessage:
    tags = {"id": RECEIPTED_MESSAGE_ID, "state": MESSAGE_STATE, "error": NETWORK_ERROR_CODE, "payload": MESSAGE_PAYLOAD}
    return ShortMessage(
        source=SmppAddress(1, 1, "447700900123"),
        destination=SmppAddress(5, 0, "ACME"),
        esm_class=esm_class,
        data_coding=coding,
        text=text.encode("utf-16-be" if coding == UCS2 else "latin-1"),
        tlvs={tags[name]: value for name, value in tlvs.items()},
    )


LINE = "id:7f sub:001 dlvrd:001 submit date:2611150930 done date:2611150931 stat:DELIVRD err:000 text:"


@pytest.mark.parametrize(
    ("sm", "id_", "status", "detail"),
    [
        (
            delivered(LINE + "Your code is 123456"),
            "7f",
            "delivered",
            {"state": "DELIVRD", "err": "000", "submit_date": "2611150930", "done_date": "2611150931"},
        ),
        (delivered(LINE, coding=UCS2), "7f", "delivered", {"state": "DELIVRD"}),
        (delivered(payload=LINE.encode()), "7f", "delivered", {"state": "DELIVRD"}),
        (delivered("ID:7f STAT: UNDELIV ERR: 27 TEXT:"), "7f", "failed", {"state": "UNDELIV", "err": "27"}),
        (delivered("stat:Expired id:7f"), "7f", "failed", {"state": "EXPIRED"}),
        (
            delivered(LINE.replace(" sub", ",sub").replace(" dlvrd", ",dlvrd").replace(" stat", ",stat")),
            "7f",
            "delivered",
            {},
        ),
        (
            delivered("id:7f,sub:001,dlvrd:001,submit date:1,done date:2,stat:UNDELIV,err:069,text:id:00"),
            "7f",
            "failed",
            {"state": "UNDELIV", "err": "069", "done_date": "2"},
        ),
        (delivered("id:7f;stat:DELIVRD;err:000"), "7f", "delivered", {"err": "000"}),
        (delivered("id:7f, stat:DELIVRD, err:"), "7f", "delivered", {"state": "DELIVRD"}),
        (delivered("id:7f\tsubmit_date:1\tdonedate:2 stat:DELIVERED"), "7f", "delivered", {"done_date": "2"}),
        (delivered("id:7f sub:001 stat:REJECTD text:stat:DELIVRD id:00"), "7f", "failed", {"state": "REJECTD"}),
        (delivered("id:a:b-c stat:ACCEPTD"), "a:b-c", "sent", {"state": "ACCEPTD"}),
        (delivered("id:7f stat:ENROUTE", esm_class=0x20), "7f", "sent", {"state": "ENROUTE"}),
        (delivered("id:7f stat:DELIVRD", esm_class=0x44), "7f", "delivered", {"state": "DELIVRD"}),
        (delivered("id:7f stat:UNKNOWN"), "7f", "failed", {"state": "UNKNOWN"}),
        (delivered("id:7f stat:BOUNCED"), "7f", "sent", {"text": "in a carrier-specific state: BOUNCED"}),
        (delivered(id=b"7f\0", state=b"\x02"), "7f", "delivered", {"state": "DELIVRD"}),
        (delivered(id=b"7f", state=b"\x05", error=b"\x03\0\x1b"), "7f", "failed", {"state": "UNDELIV", "err": "27"}),
        (delivered(id=b"7f", state=b"\x02", esm_class=0), "7f", "delivered", {}),  # only an SMSC can set the TLV
        (delivered("id: sub:001 stat:DELIVRD", id=b"7f"), "7f", "delivered", {"state": "DELIVRD"}),
        (delivered("id:7f stat:DELIVRD", state=b""), "7f", "delivered", {}),
        (delivered("id:7f stat:DELIVRD", state=b"\x63"), "7f", "delivered", {}),
        (delivered("id:7f stat:DELIVRD", state=b"\x01"), "7f", "sent", {"state": "ENROUTE"}),  # the TLV is used
    ],
)
def test_receipt_text_gives_the_expected_report(
    sm: ShortMessage, id_: str, status: str, detail: dict[str, Any]
) -> None:
    receipt = parse_receipt(sm, "same")
    assert receipt
    assert (receipt[0], receipt[1].status) == (id_, status)
    assert receipt[1].detail | detail == receipt[1].detail
    assert "123456" not in str(receipt)


@pytest.mark.parametrize(
    "sm",
    [
        delivered(LINE, esm_class=0),  # an ordinary SMS
        delivered(LINE, esm_class=0x08),  # a phone's own acknowledgement
        delivered("Hello"),
        delivered("id:7f"),
        delivered("stat:DELIVRD"),
        delivered("paid:7f stat:DELIVRD"),
        delivered("text:id:7f stat:DELIVRD"),
        delivered(id=b"7f"),
        delivered(id=b"\0", state=b"\x02"),
        delivered(),
    ],
)
def test_message_that_is_no_receipt_gives_none(sm: ShortMessage) -> None:
    assert parse_receipt(sm, "same") is None


@pytest.mark.parametrize(("number", "state"), list(enumerate(MESSAGE_STATE_NAMES)))
def test_receipt_states_of_text_and_tlv_are_equal(number: int, state: str) -> None:
    by_text = parse_receipt(delivered(f"id:7f stat:{state}"), "same")
    assert by_text == parse_receipt(delivered(id=b"7f", state=bytes((number,))), "same")
    assert by_text and "own" not in by_text[1].detail["text"]


@pytest.mark.parametrize(
    ("form", "issued", "sm"),
    [
        ("same", "00ab", delivered("id:00ab stat:DELIVRD")),
        ("same", "00ab", delivered("id:AB stat:DELIVRD")),
        ("same", "AB12", delivered("id:0000ab12 stat:DELIVRD")),
        ("same", "AB12", delivered("id:00ab12 stat:DELIVRD", id=b"ab12")),
        ("same", "0", delivered("id:000 stat:DELIVRD")),
        ("hex", "X-01", delivered("id:0x-01 stat:DELIVRD")),
        ("hex", "171", delivered("id:AB stat:DELIVRD")),
        ("hex", "0171", delivered("id:000000ab stat:DELIVRD")),
        ("hex", "171", delivered(id=b"ab", state=b"\x02")),
        ("decimal", "AB", delivered("id:171 stat:DELIVRD")),
        ("decimal", "00ab", delivered("id:0000000171 stat:DELIVRD")),
        ("decimal", "ab", delivered("id:171 stat:DELIVRD", id=b"ab")),  # the TLV as submit_sm_resp had it
        ("decimal", "12", delivered("id:18 stat:DELIVRD", id=b"18")),
        ("decimal", "x-1", delivered("id:x-1 stat:DELIVRD")),  # not a number, so unchanged
        ("hex", "1_0", delivered("id:1_0 stat:DELIVRD")),
    ],
)
def test_receipt_ids_match_in_any_format(form: IdForm, issued: str, sm: ShortMessage) -> None:
    receipt = parse_receipt(sm, form)
    assert receipt and receipt[0] == normalize_submit_id(issued, form)
