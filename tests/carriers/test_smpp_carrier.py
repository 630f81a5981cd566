"""The carrier `smpp` against an SMSC that follows a script, over real sockets."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import structlog

from heliograph.carriers.contract import OutboundMessage
from heliograph.carriers.sms.smpp import carrier as smpp_carrier
from heliograph.carriers.sms.smpp import command, intake, status
from heliograph.carriers.sms.smpp.carrier import Smpp
from heliograph.carriers.sms.smpp.pdu import (
    MESSAGE_PAYLOAD,
    ShortMessage,
    SmppAddress,
    decode_short_message,
    encode_pdu,
)
from heliograph.carriers.sms.smpp.session import Timings
from heliograph.carriers.sms.smpp.text import encode_text
from heliograph.domain.delivery.content import SmsContent
from heliograph.domain.delivery.outcome import (
    Accepted,
    Deferred,
    IncomingText,
    Outcome,
    Refused,
    Report,
    TextPart,
)
from heliograph.domain.phones.carrier_codes import reported_opt_out
from heliograph.domain.setup.carrier_kinds import SmppOptions
from tests.carriers.smsc import DROP, HALF, HANG, HOLD, NACK, Script, Smsc, receipt
from tests.carriers.smtp_peer import Authority

pytestmark = pytest.mark.anyio

PASSWORD = "s3cret-pw"
# Timeouts for an SMSC that hangs
QUICK = Timings(response=0.3, connect=2.0, backoff=0.02, backoff_max=0.1, throttle_pause=0.02, close=0.5)
PATIENT = msgspec.structs.replace(QUICK, response=20.0, connect=20.0)  # if it responds, also on a busy machine
LONG = "a" * 400  # three parts


def outbound_message(
    text: str = "Hi, code 123456", sender: str = "ACME", to: str = "+447700900123", **fields: Any
) -> OutboundMessage:
    platform_sender = fields.pop("platform_sender", False)
    content = SmsContent(
        body=text,
        sender_id=sender,
        platform_sender=platform_sender,
        encoding="gsm7",
        segments=1,
        parts=1,
        validity_s=fields.pop("validity_s", 0),
    )
    values: dict[str, Any] = {"message_id": "sms_1", "attempt": 0} | fields
    return OutboundMessage(address=to, content=msgspec.json.encode(content), **values)


class Texts:
    """A store for inbound texts."""

    def __init__(self, fail: int = 0) -> None:
        self.taken: list[Any] = []
        self.fail = fail

    async def __call__(self, texts: Sequence[IncomingText | TextPart]) -> None:
        if self.fail:
            self.fail -= 1
            raise OSError("disk full")
        self.taken += texts


class Reports:
    """A store for reports, which can be made to wait or fail."""

    def __init__(self) -> None:
        self.calls: list[list[tuple[str, Report]]] = []
        self.go = asyncio.Event()
        self.go.set()
        self.fail = 0

    async def __call__(self, reports: Sequence[tuple[str, Report]]) -> None:
        self.calls.append(list(reports))
        await self.go.wait()
        if self.fail:
            self.fail -= 1
            raise OSError("disk full")

    def states(self) -> list[tuple[str, str]]:
        return [(id_, report.status) for call in self.calls for id_, report in call]


@asynccontextmanager
async def carrier_of(
    port: int,
    reports: Reports | None = None,
    *,
    texts: Texts | None = None,
    timings: Timings = PATIENT,
    roots: Any = None,
    **options: Any,
) -> AsyncIterator[Smpp]:
    settings: dict[str, Any] = {"host": "127.0.0.1", "port": port, "system_id": "acme", "password": PASSWORD} | options
    carrier = Smpp(SmppOptions(**settings), reports or Reports(), texts or Texts(), timings=timings, roots=roots)
    try:
        yield carrier
    finally:
        await carrier.close()


def id_of(outcome: Outcome) -> str:
    assert isinstance(outcome, Accepted) and outcome.carrier_id
    return outcome.carrier_id


def was_unreachable(outcome: Outcome) -> bool:
    return isinstance(outcome, Deferred) and outcome.unreachable


async def until(true: Callable[..., object]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.005)


async def send_one(script: Script, message: OutboundMessage | None = None, **options: Any) -> tuple[Outcome, Smsc]:
    """Return the outcome of one message."""
    options = {"timings": QUICK if HANG in str(script) else PATIENT} | options
    async with Smsc(script) as smsc, carrier_of(smsc.port, **options) as carrier:
        return await carrier.send_message(message or outbound_message()), smsc


# -- outcomes ----------------------------------------------------------------------------------------------


async def test_submit_is_accepted_with_its_id() -> None:
    outcome, smsc = await send_one({})
    detail = {"carrier": "smpp", "host": "127.0.0.1", "sender": "ACME", "parts": 1}
    # No body, no password
    assert outcome == Accepted(carrier_id="1", detail=detail | {"code": "0x00000000", "text": "accepted"})
    assert smsc.names() == ["bind", "submit", "unbind"]
    assert smsc.requests[0][1].body == b"acme\0s3cret-pw\0\0\x34\0\0\0"


@pytest.mark.parametrize(
    ("validity_s", "written"),
    [
        (0, ""),
        (600, "000000001000000R"),
        (86_400, "000001000000000R"),
        (2 * 86_400 - 1, "000001235959000R"),
        (100 * 86_400, "000031000000000R"),
    ],
)
async def test_submit_contains_the_validity_period(validity_s: int, written: str) -> None:
    _, smsc = await send_one({}, outbound_message("long " * 50, validity_s=validity_s))
    submits = [pdu for name, pdu in smsc.requests if name == "submit"]
    assert [decode_short_message(pdu.body).validity_period for pdu in submits] == [written] * 2


async def test_submit_validity_ends_when_the_message_expires() -> None:
    _, smsc = await send_one({}, outbound_message(validity_s=600, seconds_left=60))
    assert [decode_short_message(pdu.body).validity_period for name, pdu in smsc.requests if name == "submit"] == [
        "000000000100000R"
    ]


@pytest.mark.parametrize("number", status.STATUS_TABLE)
async def test_submit_status_gives_its_outcome(number: int) -> None:
    outcome, smsc = await send_one({"submit": number})
    expected: dict[str, tuple[type[Outcome], bool]] = {
        "accepted": (Accepted, False),
        "refused": (Refused, False),
        "deferred": (Deferred, False),
        "throttled": (Deferred, False),
        "unbound": (Deferred, True),
    }
    assert (type(outcome), getattr(outcome, "unreachable", False)) == expected[status.verdict_for(number)]
    assert outcome.detail["code"] == f"0x{number:08x}"
    assert not getattr(outcome, "bounced", False) and not getattr(outcome, "uncertain", False)
    assert len(smsc.received) == 1


@pytest.mark.parametrize(
    ("script", "flag", "words"),
    [
        ({"submit": NACK}, "unreachable", "invalid command (ESME_RINVCMDID)"),
        ({"submit": HANG}, "uncertain", "did not answer within 0.3 s: the message may have been sent"),
        ({"submit": DROP}, "uncertain", "closed the connection: the message may have been sent"),
        ({"submit": HALF}, "uncertain", "closed the connection: the message may have been sent"),
        ({"bind": 0x0E}, "unreachable", "refused the bind: invalid password (ESME_RINVPASWD)"),
        ({"bind": NACK}, "unreachable", "refused the bind: invalid command (ESME_RINVCMDID)"),
        ({"bind": DROP}, "unreachable", "closed the connection"),
        ({"bind": HANG}, "unreachable", "did not answer within 0.3 s"),
    ],
)
async def test_submit_without_a_valid_response_gives_the_expected_outcome(
    script: Script, flag: str, words: str
) -> None:
    outcome, _ = await send_one(script)
    assert isinstance(outcome, Deferred)
    assert (outcome.unreachable, outcome.uncertain) == (flag == "unreachable", flag == "uncertain")
    assert outcome.detail["text"].endswith(words)


async def test_submit_to_a_closed_port_is_unreachable() -> None:
    async with Smsc() as smsc:
        pass
    with structlog.testing.capture_logs() as logs:
        async with carrier_of(smsc.port) as carrier:
            outcome = await carrier.send_message(outbound_message())
    assert isinstance(outcome, Deferred) and outcome.unreachable
    assert outcome.detail["text"].startswith("127.0.0.1 cannot be reached: ")
    assert [line["event"] for line in logs] == ["smpp not bound"]
    assert PASSWORD not in str(outcome) + str(logs)


async def test_submit_without_an_answering_host_is_unreachable() -> None:
    outcome, _ = await send_one({"bind": HANG}, timings=msgspec.structs.replace(QUICK, connect=0.05))
    assert isinstance(outcome, Deferred) and outcome.unreachable
    assert outcome.detail["text"] == "127.0.0.1 could not be bound within 0.05 s"


async def test_uncertain_message_is_resent_or_stopped_by_setting() -> None:
    again, smsc = await send_one({}, outbound_message(uncertain=True))
    assert isinstance(again, Accepted)
    stopped, smsc = await send_one({}, outbound_message(uncertain=True), uncertain="stop")
    assert isinstance(stopped, Refused) and "may have been sent" in stopped.detail["text"]
    assert smsc.received == []


@pytest.mark.parametrize(
    ("platform_sender", "source_addr", "used"),
    [
        (False, "", SmppAddress(5, 0, "ACME")),
        (False, "+447700900999", SmppAddress(5, 0, "ACME")),
        (True, "", SmppAddress(5, 0, "ACME")),
        (True, "+447700900999", SmppAddress(1, 1, "447700900999")),
    ],
)
async def test_submit_sender_is_chosen_by_the_message_and_settings(
    platform_sender: bool, source_addr: str, used: SmppAddress
) -> None:
    outcome, smsc = await send_one({}, outbound_message(platform_sender=platform_sender), source_addr=source_addr)
    assert smsc.received[0].source == used
    assert outcome.detail["sender"] == used.value


async def test_submit_to_an_smsc_in_another_process_is_accepted() -> None:
    """The SMSC runs as in other tests."""
    text = ("--to", "447700900001=refuse", "--to", "447700900002=throttle,accept", "--receipts", "failed")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.carriers.smsc", *text, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout
    try:
        reports = Reports()
        async with carrier_of(json.loads(await process.stdout.readline())["port"], reports) as carrier:
            numbers = ("+447700900001", "+447700900002", "+447700900002")
            kinds = [type(await carrier.send_message(outbound_message(to=number))) for number in numbers]
            assert kinds == [Refused, Deferred, Accepted]
            await until(lambda: reports.calls)
        assert reports.states() == [("3", "failed")]
    finally:
        process.kill()
        log_entries = [json.loads(line) for line in (await process.stdout.read()).splitlines()]
        await process.wait()
    assert log_entries[0] == {"bound": True}
    about = {"from": "ACME", "validity": "", "answer": 11, "id": "00000001"}
    assert log_entries[1] == {"submit": "447700900001", **about}


# -- long messages -----------------------------------------------------------------------------------------


async def test_parts_are_sent_in_order_with_one_reference_at_every_attempt() -> None:
    async with Smsc() as smsc, carrier_of(smsc.port) as carrier:
        first = await carrier.send_message(outbound_message(LONG))
        await carrier.send_message(outbound_message(LONG, uncertain=True))
        await carrier.send_message(outbound_message(LONG, message_id="sms_2"))
    assert isinstance(first, Accepted)
    assert (first.carrier_id, first.parts) == (None, ("1", "2", "3"))
    assert first.detail["parts"] == 3
    headers = [sm.text[:6] for sm in smsc.received]
    assert [(header[:3], header[4], header[5]) for header in headers] == [(b"\5\0\3", 3, n) for n in (1, 2, 3)] * 3
    references = [header[3] for header in headers]
    assert references[:3] == references[3:6] != references[6:]


async def test_message_payload_is_sent_as_one_submit() -> None:
    outcome, smsc = await send_one({}, outbound_message(LONG), long="payload")
    assert isinstance(outcome, Accepted) and outcome.carrier_id == "1"
    assert [sm.text_bytes for sm in smsc.received] == [LONG.encode()]


@pytest.mark.parametrize(
    ("submit", "kind", "uncertain", "sent", "words"),
    [
        ([0, 0x58, 0x58, 0, 0], Accepted, False, 5, "accepted"),
        ([0, 0x14, 0], Accepted, False, 4, "accepted"),
        ([0, 0x58], Deferred, False, 5, "ESME_RTHROTTLED) (part 2 of 3)"),
        ([0x58], Deferred, False, 1, "ESME_RTHROTTLED) (part 1 of 3)"),
        ([0, 0, 0x0B], Refused, False, 3, "ESME_RINVDSTADR) (part 3 of 3)"),
        ([0, 0x04, 0], Accepted, False, 4, "accepted"),
        ([0, HANG], Deferred, True, 2, "may have been sent (part 2 of 3)"),
        ([0, DROP], Deferred, True, 2, "may have been sent (part 2 of 3)"),
    ],
)
async def test_failing_part_gives_the_expected_outcome(
    submit: list[int | str | bytes], kind: type[Outcome], uncertain: bool, sent: int, words: str
) -> None:
    outcome, smsc = await send_one({"submit": submit}, outbound_message(LONG))
    assert type(outcome) is kind
    assert getattr(outcome, "uncertain", False) is uncertain
    assert not getattr(outcome, "unreachable", False)  # a part was sent, so no other carrier is tried
    assert outcome.detail["text"].endswith(words)
    assert len(smsc.received) == sent


@pytest.mark.parametrize("trouble", [0x58, 0x14, HANG])
async def test_part_that_is_deferred_is_sent_alone_at_the_next_attempt(trouble: int | str) -> None:
    timings = msgspec.structs.replace(QUICK, response=0.3) if trouble == HANG else PATIENT
    async with Smsc({"submit": [0, trouble]}) as smsc, carrier_of(smsc.port, timings=timings) as carrier:
        first = await carrier.send_message(outbound_message(LONG))
        assert isinstance(first, Deferred)
        tried = len(smsc.received)
        smsc.script = {}
        second = (await send_until_accepted(carrier, text=LONG, attempt=1, uncertain=first.uncertain))[-1]
        other = await carrier.send_message(outbound_message(LONG, message_id="sms_2"))
    assert isinstance(second, Accepted) and second.parts[0] == "1" and len(second.parts) == 3
    assert isinstance(other, Accepted) and len(other.parts) == 3
    assert [sm.text[5] for sm in smsc.received[tried:]] == [2, 3, 1, 2, 3]


async def test_part_that_is_deferred_longer_than_receipts_wait_is_sent_with_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By then, the receipt of the first part may have been discarded."""
    monkeypatch.setattr(smpp_carrier, "RESUME_WINDOW_S", 0.0)
    async with Smsc({"submit": [0, 0x58]}) as smsc, carrier_of(smsc.port) as carrier:
        assert isinstance(await carrier.send_message(outbound_message(LONG)), Deferred)
        tried = len(smsc.received)
        smsc.script = {}
        assert isinstance(await carrier.send_message(outbound_message(LONG)), Accepted)
    assert [sm.text[5] for sm in smsc.received[tried:]] == [1, 2, 3]


async def test_unbind_between_two_parts_sends_the_rest_over_the_next_session() -> None:
    good_bye = encode_pdu(command.SUBMIT_SM | command.RESP, 2, b"1\0") + encode_pdu(command.UNBIND, 1)
    outcome, smsc = await send_one({"submit": [good_bye, 0]}, outbound_message(LONG))
    assert isinstance(outcome, Accepted) and len(outcome.parts) == 3
    assert [sm.text[5] for sm in smsc.received] == [1, 2, 3]
    assert smsc.names().count("bind") == 2


async def test_close_between_two_parts_sends_the_rest_first() -> None:
    async with Smsc({"submit": HOLD}) as smsc, carrier_of(smsc.port, throughput=20) as carrier:
        task = asyncio.create_task(carrier.send_message(outbound_message(LONG)))
        await until(lambda: smsc.held_receipts)
        closing = asyncio.create_task(carrier.close())
        while not task.done():
            smsc.release()
            await asyncio.sleep(0.005)
        await closing
    assert isinstance(await task, Accepted)
    assert smsc.names() == ["bind", "submit", "submit", "submit", "unbind"]


# -- window, throughput, cancelling ------------------------------------------------------------------------


async def test_unanswered_submits_are_limited_by_the_window() -> None:
    async with Smsc({"submit": HOLD}) as smsc, carrier_of(smsc.port, window=3) as carrier:
        tasks = [asyncio.create_task(carrier.send_message(outbound_message())) for _ in range(7)]
        for left in (3, 3, 1):
            await until(lambda left=left: len(smsc.held_receipts) == left)
            await asyncio.sleep(0.02)
            assert len(smsc.held_receipts) == left
            smsc.release()
        outcomes = await asyncio.gather(*tasks)
    assert sorted(map(id_of, outcomes)) == [f"{n:x}" for n in range(1, 8)]


async def test_submits_waiting_for_the_window_of_a_lost_connection_are_not_sent() -> None:
    async with Smsc({"submit": HOLD}) as smsc, carrier_of(smsc.port, window=1) as carrier:
        sent, *waiting = [asyncio.create_task(carrier.send_message(outbound_message())) for _ in range(4)]
        await until(lambda: smsc.held_receipts)
        smsc.connections[0].transport.abort()
        async with asyncio.timeout(60):
            outcome = await sent
            assert isinstance(outcome, Deferred) and outcome.uncertain
            assert [was_unreachable(await task) for task in waiting] == [True] * 3


async def test_responses_in_any_order_are_matched_to_their_submits() -> None:
    async with Smsc({"submit": HOLD}) as smsc, carrier_of(smsc.port) as carrier:
        tasks = [asyncio.create_task(carrier.send_message(outbound_message(to=f"+44770090012{n}"))) for n in range(5)]
        await until(lambda: len(smsc.held_receipts) == 5)
        order = [int(sm.destination.value[-1]) for sm in smsc.received]
        smsc.held_receipts.reverse()
        smsc.release()
        outcomes = await asyncio.gather(*tasks)
    assert [id_of(outcomes[n]) for n in order] == [f"{n:x}" for n in range(1, 6)]


async def test_submits_per_second_are_limited() -> None:
    async with Smsc() as smsc, carrier_of(smsc.port, throughput=20) as carrier:
        carrier.open()
        await until(lambda: smsc.bound)
        start = asyncio.get_running_loop().time()
        first, given_up, *rest = [asyncio.create_task(carrier.send_message(outbound_message())) for _ in range(5)]
        await asyncio.sleep(0)
        given_up.cancel()
        assert all(isinstance(outcome, Accepted) for outcome in await asyncio.gather(first, *rest))
        # The rate is never exceeded; a busy machine may be slower
        assert asyncio.get_running_loop().time() - start >= 0.13
    assert len(smsc.received) == 4


async def test_unreachable_carrier_is_reported_at_once_despite_the_rate_limit() -> None:
    async with Smsc() as away:
        pass
    async with carrier_of(away.port, throughput=1) as carrier, asyncio.timeout(60):
        outcomes = await asyncio.gather(*(carrier.send_message(outbound_message()) for _ in range(12)))
    assert [was_unreachable(outcome) for outcome in outcomes] == [True] * 12


async def test_throttled_carrier_is_paused() -> None:
    timings = msgspec.structs.replace(QUICK, throttle_pause=0.1)
    async with Smsc({"submit": [0x58, 0]}) as smsc, carrier_of(smsc.port, timings=timings) as carrier:
        assert isinstance(await carrier.send_message(outbound_message()), Deferred)
        start = asyncio.get_running_loop().time()
        assert isinstance(await carrier.send_message(outbound_message()), Accepted)
        assert asyncio.get_running_loop().time() - start >= 0.09


async def test_cancelled_send_keeps_its_window_slot_until_answered() -> None:
    async with Smsc({"submit": [HOLD, 0]}) as smsc, carrier_of(smsc.port, window=1) as carrier:
        given_up = asyncio.create_task(carrier.send_message(outbound_message()))
        await until(lambda: smsc.held_receipts)
        given_up.cancel()
        waits = asyncio.create_task(carrier.send_message(outbound_message()))
        await asyncio.sleep(0.02)
        assert len(smsc.received) == 1
        smsc.release()
        assert isinstance(await waits, Accepted)
    assert len(smsc.connections) == 1


async def test_cancelling_at_any_point_leaves_the_carrier_usable() -> None:
    async with Smsc() as smsc, carrier_of(smsc.port, window=2) as carrier:
        for steps in range(12):
            tasks = [asyncio.create_task(carrier.send_message(outbound_message())) for _ in range(4)]
            for _ in range(steps):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        outcomes = await asyncio.gather(*(carrier.send_message(outbound_message()) for _ in range(4)))
    assert [type(outcome) for outcome in outcomes] == [Accepted] * 4
    assert len(smsc.connections) == 1


async def test_window_slot_of_an_unanswered_submit_is_released_after_its_timeout() -> None:
    timings = msgspec.structs.replace(QUICK, response=2.0)
    async with Smsc({"submit": [HANG, 0]}) as smsc, carrier_of(smsc.port, timings=timings, window=1) as carrier:
        silent = asyncio.create_task(carrier.send_message(outbound_message()))
        await until(lambda: smsc.received)
        waits = asyncio.create_task(carrier.send_message(outbound_message()))
        while not silent.done():  # the connection works, only this response is missing
            await smsc.bound[0].request(command.ENQUIRE_LINK)
            await asyncio.sleep(0.1)
        assert isinstance(await silent, Deferred)
        assert isinstance(await waits, Accepted)
    assert len(smsc.connections) == 1


# -- the connection ----------------------------------------------------------------------------------------


async def test_open_binds_and_reconnects_after_a_lost_connection() -> None:
    with structlog.testing.capture_logs() as logs:
        async with Smsc() as smsc, carrier_of(smsc.port) as carrier:
            carrier.open()
            carrier.open()
            await until(lambda: smsc.bound)
            for times in range(1, 4):
                smsc.connections[-1].transport.abort()
                await until(lambda times=times: len(smsc.bound) == 1 and len(smsc.connections) == times + 1)
            assert isinstance(await carrier.send_message(outbound_message()), Accepted)
    assert smsc.names().count("bind") == 4
    assert [line["event"] for line in logs] == ["smpp bound", "smpp not bound"] * 3 + ["smpp bound"]


async def test_submit_waits_for_a_bind_in_progress() -> None:
    async with Smsc({"bind": [0, HOLD]}) as smsc, carrier_of(smsc.port) as carrier:
        assert isinstance(await carrier.send_message(outbound_message()), Accepted)
        smsc.connections[0].transport.abort()
        await until(lambda: smsc.held_receipts)
        waits = asyncio.create_task(carrier.send_message(outbound_message()))
        await asyncio.sleep(0.02)
        assert not waits.done()
        smsc.release()
        assert isinstance(await waits, Accepted)


async def test_carrier_that_returns_is_bound_at_once() -> None:
    async with Smsc() as away:
        pass
    async with carrier_of(away.port) as carrier:
        assert (await carrier.send_message(outbound_message())).unreachable  # type: ignore[union-attr]
        async with Smsc(port=away.port) as smsc:
            await until(lambda: smsc.bound)
            assert isinstance(await carrier.send_message(outbound_message()), Accepted)


async def test_submit_without_a_bind_starts_a_bind() -> None:
    async with Smsc({"submit": [status.RINVBNDSTS, 0]}) as smsc, carrier_of(smsc.port) as carrier:
        assert (await carrier.send_message(outbound_message())).unreachable  # type: ignore[union-attr]
        await until(lambda: len(smsc.connections) == 2 and smsc.bound)
        assert isinstance(await carrier.send_message(outbound_message()), Accepted)


@pytest.mark.parametrize("enquire", [0, HANG])
async def test_enquire_link_is_sent_on_an_idle_connection(enquire: int | str) -> None:
    timings = msgspec.structs.replace(QUICK, enquire_interval=0.02, response=0.1)
    async with Smsc({"enquire": enquire}) as smsc, carrier_of(smsc.port, timings=timings) as carrier:
        carrier.open()
        if enquire == HANG:  # if the SMSC does not answer, a new session is bound
            await until(lambda: smsc.names().count("bind") > 1)
        else:
            await until(lambda: smsc.names().count("enquire") > 3)
            assert smsc.names().count("bind") == 1


async def test_requests_of_the_carrier_are_answered() -> None:
    async with Smsc() as smsc, carrier_of(smsc.port) as carrier:
        carrier.open()
        await until(lambda: smsc.bound)
        bound = smsc.bound[0]
        alive = await bound.request(command.ENQUIRE_LINK)
        assert (alive.command, alive.status) == (command.ENQUIRE_LINK | command.RESP, 0)
        unknown = await bound.request(0x00000021)  # submit_multi
        assert (unknown.command, unknown.status) == (command.GENERIC_NACK, status.RINVCMDID)
        bound.request(command.ALERT_NOTIFICATION)
        gone = await bound.request(command.UNBIND)
        assert (gone.command, gone.status) == (command.UNBIND | command.RESP, 0)
        assert len(smsc.answers) == 3
        await until(lambda: len(smsc.connections) == 2 and smsc.bound)


async def test_unsolicited_responses_change_nothing() -> None:
    async with Smsc({"submit": HOLD}) as smsc, carrier_of(smsc.port) as carrier:
        task = asyncio.create_task(carrier.send_message(outbound_message()))
        await until(lambda: smsc.held_receipts)
        connection, answer = smsc.held_receipts[0]
        other = bytearray(answer)
        other[7] = 0x15  # an enquire_link_resp with the number of the submit
        late_claim = bytearray(answer)
        late_claim[15] = 99
        connection.transport.write(bytes(other) + bytes(late_claim))
        await connection.request(command.ENQUIRE_LINK)
        assert not task.done()
        smsc.release()
        assert isinstance(await task, Accepted)


async def test_close_waits_for_answers_and_unbinds() -> None:
    async with Smsc({"submit": HOLD}) as smsc, carrier_of(smsc.port) as carrier:
        task = asyncio.create_task(carrier.send_message(outbound_message()))
        await until(lambda: smsc.held_receipts)
        closing = asyncio.create_task(carrier.close())
        await asyncio.sleep(0.02)
        assert smsc.names() == ["bind", "submit"]
        smsc.release()
        await closing
        assert isinstance(await task, Accepted)
        assert smsc.names() == ["bind", "submit", "unbind"]
        after = await carrier.send_message(outbound_message())
        assert isinstance(after, Deferred) and after.unreachable
        await asyncio.sleep(0.05)
        assert len(smsc.connections) == 1


async def test_submit_waiting_during_close_is_certainly_not_sent() -> None:
    """A response releases a window slot; the next submit would be sent just before the unbind and might arrive."""
    async with Smsc({"submit": HOLD}) as smsc, carrier_of(smsc.port, window=1) as carrier:
        first, second = (asyncio.create_task(carrier.send_message(outbound_message())) for _ in range(2))
        await until(lambda: smsc.held_receipts)
        closing = asyncio.create_task(carrier.close())
        await asyncio.sleep(0.02)
        smsc.release()
        await closing
        outcome = await second
        assert isinstance(await first, Accepted)
        assert isinstance(outcome, Deferred) and outcome.unreachable and not outcome.uncertain
        assert smsc.names() == ["bind", "submit", "unbind"]


@pytest.mark.parametrize("script", [{"unbind": HANG}, {"unbind": DROP}, {"bind": HANG}, {"submit": HANG}])
async def test_close_ends_despite_a_silent_carrier(script: Script) -> None:
    async with Smsc(script) as smsc, carrier_of(smsc.port, timings=QUICK) as carrier:
        task = asyncio.create_task(carrier.send_message(outbound_message()))
        await until(lambda: smsc.requests)
        async with asyncio.timeout(60):
            await carrier.close()
        assert isinstance(await task, Accepted | Deferred)


# -- sessions that the SMSC ends -----------------------------------------------------------------------------


async def send_until_accepted(carrier: Smpp, **fields: Any) -> list[Outcome]:
    """Send one message as the delivery worker does; return all outcomes."""
    outcomes: list[Outcome] = []
    while not outcomes or isinstance(outcomes[-1], Deferred):
        if outcomes:
            await asyncio.sleep(0.01)
        outcomes.append(await carrier.send_message(outbound_message(**fields)))
    return outcomes


async def unbind_under_load(smsc: Smsc, messages: int, unbinds: int, *, answers_before_unbind_resp: bool) -> None:
    """Send `messages` while the SMSC unbinds `unbinds` times and closes as soon as it may."""
    thresholds = [messages * times // (unbinds + 1) for times in range(1, unbinds + 1)]

    async def answer() -> None:
        while True:
            if not thresholds or len(smsc.received) < thresholds[0]:
                smsc.release()
            await asyncio.sleep(0.002)

    async def unbind() -> None:
        while thresholds:
            await until(lambda: len(smsc.received) >= thresholds[0] and smsc.held_receipts)
            session = smsc.bound[-1]
            unbound = session.request(command.UNBIND)
            if answers_before_unbind_resp:
                await session.request(command.ENQUIRE_LINK)
                smsc.release()
            await unbound
            smsc.release()
            session.transport.close()
            session.bound = False
            del thresholds[0]

    close = 60.0 if answers_before_unbind_resp else 1.0
    timings = msgspec.structs.replace(PATIENT, close=close)
    async with carrier_of(smsc.port, timings=timings, window=20) as carrier:
        tasks = [asyncio.create_task(answer()), asyncio.create_task(unbind())]
        numbers = [f"+4477{n:08d}" for n in range(messages)]
        outcomes = await asyncio.gather(*(send_until_accepted(carrier, to=number) for number in numbers))
        await tasks[1]
        assert not [outcome for tries in outcomes for outcome in tries if getattr(outcome, "uncertain", False)]
        tasks[0].cancel()


@pytest.mark.parametrize(("unbinds", "answers_before_unbind_resp"), [(5, True), (1, False)])
async def test_unbind_by_the_smsc_under_load_duplicates_no_sms(unbinds: int, answers_before_unbind_resp: bool) -> None:
    async with Smsc({"submit": HOLD}) as smsc:
        await unbind_under_load(smsc, 300, unbinds, answers_before_unbind_resp=answers_before_unbind_resp)
    assert len(smsc.received) == len({sm.destination.value for sm in smsc.received}) == 300
    assert smsc.names().count("bind") == unbinds + 1


async def test_unbind_by_the_smsc_stops_new_submits_and_is_answered_last() -> None:
    async with Smsc({"submit": HOLD}) as smsc, carrier_of(smsc.port, window=1) as carrier:
        first, second = (asyncio.create_task(carrier.send_message(outbound_message())) for _ in range(2))
        await until(lambda: smsc.held_receipts)
        session = smsc.bound[0]
        unbound = session.request(command.UNBIND)
        await session.request(command.ENQUIRE_LINK)
        again = session.request(command.UNBIND)  # a second unbind gets an immediate response
        assert (await again).status == 0 and not unbound.done()
        smsc.release()
        assert isinstance(await first, Accepted)
        assert was_unreachable(await second)
        assert (await unbound).command == command.UNBIND | command.RESP
    assert len(smsc.received) == 1


async def test_unbind_by_an_smsc_that_never_answers_submits_ends_in_time() -> None:
    timings = msgspec.structs.replace(QUICK, close=0.05, response=20.0)
    async with Smsc({"submit": [HANG, 0]}) as smsc, carrier_of(smsc.port, timings=timings) as carrier:
        task = asyncio.create_task(carrier.send_message(outbound_message()))
        await until(lambda: smsc.received)
        assert (await smsc.bound[0].request(command.UNBIND)).status == 0
        outcome = await task
        assert isinstance(outcome, Deferred) and outcome.uncertain
        await until(lambda: smsc.names().count("bind") == 2 and smsc.bound)
        assert isinstance(await carrier.send_message(outbound_message()), Accepted)


@pytest.mark.parametrize("why", ["silent", "lost bind", "generic_nack", "alert_notification"])
async def test_failing_session_duplicates_no_sms_that_is_answered_in_time(why: str) -> None:
    """A submit in flight keeps its full response timeout, whatever retired its session."""
    timings = msgspec.structs.replace(QUICK, enquire_interval=60.0, response=4.0)
    async with Smsc({"submit": [HOLD, HOLD, 0]}) as smsc, carrier_of(smsc.port, timings=timings) as carrier:
        first = asyncio.create_task(carrier.send_message(outbound_message(to="+447700900001")))
        await until(lambda: len(smsc.held_receipts) == 1)
        if why == "silent":
            await asyncio.sleep(timings.response * 0.75)
        second = asyncio.create_task(carrier.send_message(outbound_message(to="+447700900002")))
        await until(lambda: len(smsc.held_receipts) == 2)
        session, octets = smsc.held_receipts.pop(0)
        match why:
            case "silent":  # the first one times out, and nothing was heard meanwhile
                assert getattr(await first, "uncertain", False)
            case "lost bind":
                session.transport.write(octets[:8] + status.RINVBNDSTS.to_bytes(4) + octets[12:])
                assert was_unreachable(await first)
            case "generic_nack":
                session.transport.write(encode_pdu(command.GENERIC_NACK, 0, status=status.RINVCMDID))
                session.transport.write(octets)
                assert isinstance(await first, Accepted)
            case _:
                session.transport.write(encode_pdu(command.ALERT_NOTIFICATION, 7, b"") + octets)
                assert isinstance(await first, Accepted)
        if why in ("silent", "lost bind"):  # the next session is bound meanwhile
            await until(lambda: smsc.names().count("bind") == 2)
            assert isinstance(await carrier.send_message(outbound_message()), Accepted)
        smsc.release()
        assert isinstance(await second, Accepted)


# -- TLS ---------------------------------------------------------------------------------------------------


async def test_tls_with_a_trusted_certificate_binds() -> None:
    authority = Authority()
    server, _ = authority.server("127.0.0.1")
    async with Smsc(tls=server) as smsc, carrier_of(smsc.port, tls=True, roots=authority.trusted()) as carrier:
        assert isinstance(await carrier.send_message(outbound_message()), Accepted)
    assert smsc.names() == ["bind", "submit", "unbind"]


@pytest.mark.parametrize(("host", "known"), [("127.0.0.1", False), ("smsc.example", True)])
async def test_tls_with_an_untrusted_certificate_sends_no_password(host: str, known: bool) -> None:
    authority = Authority()
    roots = authority.trusted() if known else None
    async with Smsc(tls=authority.server(host)[0]) as smsc, carrier_of(smsc.port, tls=True, roots=roots) as carrier:
        outcome = await carrier.send_message(outbound_message())
    assert isinstance(outcome, Deferred) and outcome.unreachable
    assert "has a certificate that is not trusted" in outcome.detail["text"]
    assert smsc.requests == []


# -- receipts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("receipts", "early", "states"),
    [
        ("delivered", False, ["delivered"]),
        ("delivered", True, ["delivered"]),
        ("failed", False, ["failed"]),
        ("twice", False, ["delivered", "delivered"]),
        ("reordered", False, ["delivered", "sent"]),
        ("late", False, ["failed", "delivered"]),
    ],
)
async def test_receipts_are_reported_on_arrival(receipts: str, early: bool, states: list[str]) -> None:
    reports = Reports()
    async with Smsc(receipts=receipts, early=early) as smsc, carrier_of(smsc.port, reports) as carrier:
        assert isinstance(await carrier.send_message(outbound_message()), Accepted)
        assert reports.calls or not early
        await until(lambda: len(smsc.answers) == len(states))
    assert reports.states() == [("1", state) for state in states]
    assert {answer.status for answer in smsc.answers} == {0}


async def test_receipt_is_acknowledged_after_it_is_stored() -> None:
    reports = Reports()
    reports.go.clear()
    async with Smsc() as smsc, carrier_of(smsc.port, reports) as carrier:
        carrier.open()
        await until(lambda: smsc.bound)
        first = smsc.bound[0].request(command.DELIVER_SM, b"")  # not readable: answered at once
        deliveries = [asyncio.create_task(smsc.deliver(receipt(f"{n}"))) for n in range(4)]
        await until(lambda: reports.calls)
        await smsc.bound[0].request(command.ENQUIRE_LINK)
        assert (await first).status == status.RX_P_APPN
        assert not any(task.done() for task in deliveries)
        reports.go.set()
        assert [(await task).status for task in deliveries] == [0] * 4
        assert [(await task).body for task in deliveries] == [b"\0"] * 4
    assert sorted(reports.states()) == [(f"{n}", "delivered") for n in range(4)]
    assert len(reports.calls) <= 2  # reports received meanwhile were stored together


async def test_receipt_by_data_sm_is_reported() -> None:
    reports = Reports()
    tlvs = b"\x00\x1e\x00\x02" + b"7\0" + b"\x04\x27\x00\x01\x02"  # receipted_message_id, message_state
    body = b"\0" + b"\1\1447700900123\0" + b"\5\0Acme\0" + b"\x04\0\0" + tlvs
    async with Smsc() as smsc, carrier_of(smsc.port, reports) as carrier:
        carrier.open()
        await until(lambda: smsc.bound)
        broken = await smsc.bound[0].request(command.DATA_SM, b"\0\1")
        assert (broken.command, broken.status) == (command.DATA_SM | command.RESP, status.RX_P_APPN)
        response = await smsc.bound[0].request(command.DATA_SM, body)
        assert (response.command, response.status, response.body) == (command.DATA_SM | command.RESP, 0, b"\0")
    assert reports.states() == [("7", "delivered")]


async def test_receipt_that_cannot_be_stored_is_refused_temporarily() -> None:
    reports = Reports()
    reports.fail = 2
    with structlog.testing.capture_logs() as logs:
        async with Smsc(receipts="delivered") as smsc, carrier_of(smsc.port, reports) as carrier:
            await carrier.send_message(outbound_message())
            await until(lambda: len(smsc.answers) == 3)
    assert [answer.status for answer in smsc.answers] == [status.RX_T_APPN, status.RX_T_APPN, 0]
    assert [line["error"] for line in logs if line["event"] == "receipts not stored"] == ["OSError"] * 2


async def test_receipts_beyond_the_queue_limit_are_refused_temporarily(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "QUEUED_MAX", 2)
    reports = Reports()
    reports.go.clear()
    async with Smsc() as smsc, carrier_of(smsc.port, reports) as carrier:
        carrier.open()
        await until(lambda: smsc.bound)
        tasks = [asyncio.create_task(smsc.deliver(receipt("0")))]
        await until(lambda: reports.calls)
        tasks += [asyncio.create_task(smsc.deliver(receipt(f"{n}"))) for n in range(1, 5)]
        await until(lambda: len(smsc.answers) == 2)
        reports.go.set()
        assert [(await task).status for task in tasks] == [0, 0, 0, status.RX_T_APPN, status.RX_T_APPN]


async def test_unacknowledged_receipt_arrives_over_the_next_connection() -> None:
    reports = Reports()
    reports.go.clear()
    async with Smsc(receipts="delivered") as smsc, carrier_of(smsc.port, reports) as carrier:
        await carrier.send_message(outbound_message())
        await until(lambda: reports.calls)
        smsc.connections[0].transport.abort()
        reports.go.set()
        await until(lambda: smsc.answers)
    assert reports.states() == [("1", "delivered")] * 2  # the store detects the duplicate


async def test_receipt_ids_in_another_format_are_matched() -> None:
    reports = Reports()
    async with Smsc() as smsc, carrier_of(smsc.port, reports, receipt_id="decimal") as carrier:
        smsc.issued = 170
        outcome = await carrier.send_message(outbound_message())
        await smsc.deliver(receipt("0000000171"))
    assert isinstance(outcome, Accepted) and outcome.carrier_id == "171"
    assert reports.states() == [("171", "delivered")]


@pytest.mark.parametrize(
    ("coding", "esm_class", "octets", "text"),
    [
        (0, 0, encode_text("Stop @ €5")[1], "Stop @ €5"),
        (3, 0, "Arrêt".encode("latin-1"), "Arrêt"),
        (8, 0, "Привет".encode("utf-16-be"), "Привет"),
        (0, 0x40, b"\x04\x05\x02\x0b\x84with ports", "with ports"),  # a header that is not a part's
        (0, 0x40, b"\x05\x00\x03\x07\x01\x01one of one", "one of one"),
        (0, 0x40, b"\x05\x00\x03\x07\x02\x03three of two", "three of two"),
        (0, 0x40, b"\x05\x00\x03\x07\x02\x00none of two", "none of two"),
        (0, 0, b"", ""),
    ],
)
async def test_inbound_sms_is_passed_on(coding: int, esm_class: int, octets: bytes, text: str) -> None:
    texts, reports = Texts(), Reports()
    sms = ShortMessage(
        source=SmppAddress(1, 1, "447700900123"),
        destination=SmppAddress(1, 1, "12025550123"),
        text=octets,
        data_coding=coding,
        esm_class=esm_class,
    )
    async with Smsc() as smsc, carrier_of(smsc.port, reports, texts=texts) as carrier:
        carrier.open()
        await until(lambda: smsc.bound)
        assert (await smsc.deliver(sms)).status == 0
        assert (await smsc.deliver(sms)).status == 0
    incoming, again = texts.taken
    assert (incoming.sender, incoming.to, incoming.text, incoming.is_unnamed) == (
        "+447700900123",
        "+12025550123",
        text,
        True,
    )
    assert again.id == incoming.id and not reports.calls


SAR = {0x020C: b"\x01\x07", 0x020E: b"\x03", 0x020F: b"\x02"}


@pytest.mark.parametrize(
    ("fields", "reference"),
    [
        ({"esm_class": 0x40, "text": b"\x05\x00\x03\x07\x03\x02two"}, "0:7"),
        ({"esm_class": 0x40, "text": b"\x06\x08\x04\x01\x07\x03\x02two"}, "8:263"),
        ({"esm_class": 0x40, "text": b"\x0a\x24\x01\x01\x25\x00\x00\x03\x07\x03\x02two"}, "0:7"),  # with other elements
        ({"esm_class": 0x40, "tlvs": {MESSAGE_PAYLOAD: b"\x05\x00\x03\x07\x03\x02two"}}, "0:7"),
        ({"text": b"two", "tlvs": SAR}, "sar:263"),
        ({"tlvs": SAR | {MESSAGE_PAYLOAD: b"two"}}, "sar:263"),
    ],
)
async def test_part_of_a_long_text_is_passed_on_with_its_reference(fields: dict[str, Any], reference: str) -> None:
    texts = Texts()
    source, destination = SmppAddress(1, 1, "447700900123"), SmppAddress(1, 1, "12025550123")
    sms = ShortMessage(source=source, destination=destination, data_coding=3, **fields)
    async with Smsc() as smsc, carrier_of(smsc.port, texts=texts) as carrier:
        carrier.open()
        await until(lambda: smsc.bound)
        assert (await smsc.deliver(sms)).status == 0
    assert texts.taken == [
        TextPart(
            sender="+447700900123",
            to="+12025550123",
            reference=reference,
            total=3,
            number=2,
            coding=3,
            octets=b"two",
        )
    ]


async def test_inbound_sms_that_cannot_be_stored_is_refused_temporarily() -> None:
    texts = Texts(fail=1)
    sms = ShortMessage(source=SmppAddress(1, 1, "447700900123"), destination=SmppAddress(5, 0, "ACME"), text=b"Hi")
    async with Smsc() as smsc, carrier_of(smsc.port, texts=texts) as carrier:
        carrier.open()
        await until(lambda: smsc.bound)
        assert (await smsc.deliver(sms)).status == status.RX_T_APPN
        assert (await smsc.deliver(sms)).status == 0


@pytest.mark.parametrize(
    ("codes", "number", "listed"),
    [(["0x40B"], 0x40B, True), (["0000040b"], 0x40B, False), (["0x40b"], 0x40C, False), (["0x0b"], 0x0B, True)],
)
async def test_configured_status_is_reported_as_an_opt_out(codes: list[str], number: int, listed: bool) -> None:
    outcome, _ = await send_one({"submit": number}, opted_out=codes)
    assert (reported_opt_out(outcome.detail) == "carrier") == listed
    assert isinstance(outcome, Refused) or not listed


@pytest.mark.parametrize(
    ("codes", "err", "state", "listed"),
    [
        (["451"], "0451", "UNDELIV", True),
        (["0451"], "451", "REJECTD", True),
        (["451"], "452", "UNDELIV", False),
        (["451"], "451", "DELIVRD", False),
        (["000"], "000", "UNDELIV", False),
        ([], "451", "UNDELIV", False),
    ],
)
async def test_configured_receipt_error_is_reported_as_an_opt_out(
    codes: list[str], err: str, state: str, listed: bool
) -> None:
    reports = Reports()
    async with Smsc() as smsc, carrier_of(smsc.port, reports, opted_out=codes) as carrier:
        id_ = id_of(await carrier.send_message(outbound_message()))
        text = f"id:{id_} sub:001 dlvrd:001 stat:{state} err:{err} text:".encode()
        await smsc.deliver(ShortMessage(
            source=SmppAddress(1, 1, "447700900123"), destination=SmppAddress(5, 0, "ACME"), text=text, esm_class=4
        ))  # fmt: skip
    ((_, report),) = reports.calls[0]
    assert (reported_opt_out(report.detail) == "carrier") == listed


async def test_inbound_sms_without_a_receiver_is_acknowledged_and_ignored() -> None:
    reports = Reports()
    sms = ShortMessage(
        source=SmppAddress(1, 1, "447700900123"), destination=SmppAddress(5, 0, "ACME"), text=receipt("00000001").text
    )
    async with Smsc() as smsc, carrier_of(smsc.port, reports) as carrier:
        await carrier.send_message(outbound_message())
        assert (await smsc.deliver(sms)).status == 0
    assert reports.calls == []


async def test_close_stores_and_acknowledges_received_messages() -> None:
    reports = Reports()
    reports.go.clear()
    async with Smsc() as smsc, carrier_of(smsc.port, reports) as carrier:
        carrier.open()
        await until(lambda: smsc.bound)
        delivery = asyncio.create_task(smsc.deliver(receipt("1")))
        await until(lambda: reports.calls)
        closing = asyncio.create_task(carrier.close())
        await asyncio.sleep(0.02)
        late_claim = asyncio.create_task(smsc.deliver(receipt("2")))
        assert (await late_claim).status == status.RX_T_APPN
        reports.go.set()
        assert (await delivery).status == 0
        await closing
