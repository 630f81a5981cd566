"""Long inbound SMS over SMPP: parts received by two sessions become one event, in every encoding."""

import asyncio
from functools import partial
from typing import Any

import pytest

from heliograph.carriers.sms.smpp import command
from heliograph.carriers.sms.smpp.carrier import Smpp
from heliograph.carriers.sms.smpp.pdu import MESSAGE_PAYLOAD, ShortMessage, SmppAddress, encode_short_message
from heliograph.carriers.sms.smpp.text import encode_text
from heliograph.domain.setup.carrier_kinds import SmppOptions
from heliograph.inbound.report_service import store_inbound_texts
from heliograph.storage.store import Store, make_store
from tests.carriers.smsc import Smsc
from tests.carriers.test_smpp_carrier import PATIENT, Reports, until
from tests.clocks import TestClock
from tests.storage.test_inbound_texts import texting as texting  # a fixture
from tests.storage.test_inbound_texts import told

pytestmark = pytest.mark.anyio

TEXT = "Grüße {😀} жизнь " * 12


def parts_of(form: str, text: str, reference: int) -> list[ShortMessage]:
    coding, octets = encode_text(text)
    pieces = [octets[at : at + 133] for at in range(0, len(octets), 133)]  # splits characters
    parts = []
    for number, piece in enumerate(pieces, 1):
        fields: dict[str, Any] = {"text": piece}
        counts = bytes((len(pieces), number))
        if form == "udh8":
            fields = {"esm_class": 0x40, "text": b"\x05\x00\x03" + bytes((reference,)) + counts + piece}
        elif form == "udh16":
            fields = {"esm_class": 0x40, "text": b"\x06\x08\x04" + reference.to_bytes(2) + counts + piece}
        elif form == "sar":
            fields["tlvs"] = {0x020C: reference.to_bytes(2), 0x020E: counts[:1], 0x020F: counts[1:]}
        elif form == "payload":
            tlvs = {0x020C: reference.to_bytes(2), 0x020E: counts[:1], 0x020F: counts[1:], MESSAGE_PAYLOAD: piece}
            fields = {"tlvs": tlvs}
        source, destination = SmppAddress(1, 1, "447700900123"), SmppAddress(1, 1, "12025550123")
        parts.append(ShortMessage(source=source, destination=destination, data_coding=coding, **fields))
    return parts


@pytest.mark.parametrize("form", ["udh8", "udh16", "sar", "payload"])
async def test_text_parts_of_two_sessions_become_one_text(texting: Store, clock: TestClock, form: str) -> None:
    stores = texting, make_store(texting.database, texting.local_files, clock, "seat/1")
    await stores[1].setup.refresh()
    async with Smsc() as smsc:
        options = SmppOptions(host="127.0.0.1", port=smsc.port, system_id="acme", password="x")
        carriers = [
            Smpp(options, Reports(), partial(store_inbound_texts, store, "c", "sms"), timings=PATIENT)
            for store in stores
        ]
        for carrier in carriers:
            carrier.open()
        await until(lambda: len(smsc.bound) == 2)
        parts = parts_of(form, TEXT, 7)
        assert len(parts) > 2
        deliveries = [*reversed(parts), *parts]  # each part is received twice
        answers = [
            smsc.bound[at % 2].request(command.DELIVER_SM, encode_short_message(sm)) for at, sm in enumerate(deliveries)
        ]
        assert {answer.status for answer in await asyncio.gather(*answers)} == {0}
        for carrier in carriers:
            await carrier.close()
    assert await told(texting, clock) == [("sms.received", TEXT)]
