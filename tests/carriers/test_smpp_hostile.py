"""A hostile SMSC: nothing crashes or hangs, and a later session with a good SMSC works."""

import asyncio
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.carriers.sms.smpp import command
from heliograph.carriers.sms.smpp.pdu import PDU_MAX, Pdu, encode_pdu
from heliograph.carriers.sms.smpp.session import NoSmppResponse, NotSent, SmppSession
from heliograph.carriers.sms.smpp.throttle import PLACEHOLDER
from heliograph.domain.delivery.outcome import Accepted, Deferred, Refused
from tests.carriers.smsc import Answer, Smsc
from tests.carriers.test_smpp_carrier import QUICK, carrier_of, outbound_message, until
from tests.carriers.test_smpp_wire import GOLDEN, golden

pytestmark = pytest.mark.anyio

PDUS = [golden(path.stem) for path in sorted(GOLDEN.glob("*.hex"))]
IMPATIENT = msgspec.structs.replace(QUICK, response=0.2, connect=0.5, enquire_interval=0.1, close=0.2)


def hostile(rolls: random.Random) -> bytes:
    """Return random bytes, or valid PDUs with wrong bytes, lengths or ends."""
    if rolls.random() < 0.3:
        return rolls.randbytes(rolls.randint(1, 100))
    octets = bytearray(b"".join(rolls.choices(PDUS, k=rolls.randint(1, 3))))
    for _ in range(rolls.randint(1, 8)):
        octets[rolls.randrange(len(octets))] = rolls.choice((0, 1, 0x7F, 0x80, 0xFF, rolls.randrange(256)))
    return bytes(octets[: rolls.randint(1, len(octets))]) if rolls.random() < 0.5 else bytes(octets)


@pytest.mark.parametrize("place", ["bind", "submit", "enquire"])
async def test_hostile_response_gives_the_expected_outcome(place: str) -> None:
    async def meet(seed: int) -> None:
        answers: list[Answer] = [hostile(random.Random(f"{place} {seed}")), 0]
        async with Smsc({place: answers}) as smsc, carrier_of(smsc.port, timings=IMPATIENT) as carrier:
            assert isinstance(await carrier.send_message(outbound_message()), Accepted | Deferred | Refused)
            if place == "enquire":
                await until(lambda: "enquire" in smsc.names())
            async with asyncio.timeout(60):
                while not isinstance(await carrier.send_message(outbound_message()), Accepted):
                    await asyncio.sleep(0.02)

    await asyncio.gather(*(meet(seed) for seed in range(40)))


async def test_endless_pdu_is_not_waited_for() -> None:
    async with Smsc({"enquire": b""}) as smsc, carrier_of(smsc.port, timings=IMPATIENT) as carrier:
        carrier.open()
        await until(lambda: smsc.bound)
        smsc.bound[0].transport.write((PDU_MAX).to_bytes(4))
        while smsc.names().count("bind") < 2:
            smsc.connections[0].transport.write(b"x")
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("length", [0, 15, PDU_MAX + 1, 0xFFFFFFFF])
async def test_impossible_length_is_refused_and_the_connection_reopened(length: int) -> None:
    async with Smsc() as smsc, carrier_of(smsc.port, timings=IMPATIENT) as carrier:
        carrier.open()
        await until(lambda: smsc.bound)
        smsc.bound[0].transport.write(length.to_bytes(4) + bytes(12))
        await until(lambda: smsc.answers)
        assert smsc.answers == [Pdu(command.GENERIC_NACK, 2, 0, b"")]
        await until(lambda: smsc.names().count("bind") == 2)


class Transport:
    """Fake of a socket transport."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.closing = False

    def write(self, octets: bytes) -> None:
        assert not self.closing

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.calls.append(name)


def session() -> tuple[SmppSession, Transport]:
    transport, session_under_test = Transport(), SmppSession(2, QUICK, lambda session, pdu: session.respond(pdu))
    session_under_test.connection_made(transport)  # type: ignore[arg-type]
    return session_under_test, transport


known = st.sampled_from((0x80000000, 0x80000004, 0x80000009, 0x80000015, 4, 5, 6, 9, 0x15))
pdus = st.builds(
    encode_pdu,
    st.one_of(known, st.integers(0, 2**32 - 1)),
    st.integers(0, 5),
    st.binary(max_size=30),
    st.sampled_from((0, 4, 0x58, 2**32 - 1)),
)


@given(st.lists(st.one_of(pdus, pdus, pdus, st.binary(max_size=40)), max_size=12))
def test_session_with_any_octets_answers_or_closes(chunks: list[bytes]) -> None:
    async def meet() -> None:
        dialogue, transport = session()
        tasks = [asyncio.create_task(dialogue.submit(b"", PLACEHOLDER)) for _ in range(3)]
        await asyncio.sleep(0)
        for chunk in chunks:
            dialogue.data_received(chunk)
            await asyncio.sleep(0)
        dialogue.connection_lost(None)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(item, Pdu | NoSmppResponse | NotSent) for item in results)
        assert dialogue.ended.done() and transport.closing
        with pytest.raises(NotSent):
            await dialogue.submit(b"", PLACEHOLDER)

    asyncio.run(meet())


async def test_carrier_that_reads_nothing_is_not_read() -> None:
    dialogue, transport = session()
    dialogue.pause_writing()
    dialogue.resume_writing()
    dialogue.end("enough")
    assert transport.calls == ["set_write_buffer_limits", "pause_reading", "resume_reading"]
