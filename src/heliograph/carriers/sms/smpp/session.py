"""One bound connection: requests with their answers, a window of submits, and the carrier's own requests."""

import asyncio
from collections.abc import Callable
from typing import cast

import msgspec

from heliograph.carriers.connection_queue import Line
from heliograph.carriers.contract import Parcel
from heliograph.carriers.sms.smpp import command, status
from heliograph.carriers.sms.smpp.pdu import SEQUENCE_MAX, Frames, Malformed, Pdu, encode

LINGER_S = 1.0  # for the last octets to leave
UNREAD_MAX = 1 << 20  # octets that the carrier has not read: more than a full window


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """In seconds."""

    connect: float = 5.0  # for TCP, TLS and bind together
    answer: float = 10.0  # for one answer
    enquire: float = 30.0  # between two enquire_links
    backoff: float = 0.2  # before the second attempt to connect, doubled for each further one
    backoff_max: float = 5.0
    throttled: float = 1.0  # pause after the carrier throttled us
    close: float = 5.0  # for outstanding answers, then for unbind


TIMINGS = Timings()


class Unsent(Exception):
    """It was not sent."""


class Unanswered(Exception):
    """It was written, and no answer came."""


class _Asked(msgspec.Struct, frozen=True):
    command: int
    answer: asyncio.Future[Pdu]
    until: float


class SmppSession(asyncio.Protocol):
    def __init__(self, window: int, timings: Timings, deliver: Callable[["SmppSession", Pdu], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._timings = timings
        self._deliver = deliver
        self._frames = Frames()
        self._slots = Line(window)
        self._asked: dict[int, _Asked] = {}  # the oldest first: all have the same time
        self._timer: asyncio.TimerHandle | None = None  # for the oldest
        self._sequence = 0
        self._heard = 0.0
        self._unwritten: list[bytes] = []
        self._pulse: asyncio.TimerHandle | None = None
        self._unbinding: asyncio.Task[None] | None = None  # answers the peer's unbind
        self._is_stopping = False  # no new message may be sent
        self._is_closed = False
        self.gone: asyncio.Future[str] = self._loop.create_future()  # why nothing more can be sent

    # -- what the event loop calls --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(UNREAD_MAX)

    def connection_lost(self, exc: Exception | None) -> None:
        self.end("closed the connection")

    def pause_writing(self) -> None:
        """Stop reading: a carrier that reads no answers may send no more requests."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        now = self._loop.time()
        try:
            for pdu in self._frames.feed(data):
                self._heard = now
                if pdu.command & command.RESP:
                    self._answered(pdu)
                else:
                    self._take(pdu)
        except Malformed:  # no way to know where the next PDU starts
            self._nack(0, status.RINVCMDLEN)
            self.end("did not speak SMPP")

    def _take(self, pdu: Pdu) -> None:
        match pdu.command:
            case command.DELIVER_SM | command.DATA_SM:
                self._deliver(self, pdu)
            case command.ENQUIRE_LINK:
                self.answer(pdu)
            case command.UNBIND if self._unbinding:
                self.answer(pdu)
            case command.UNBIND:
                self._unbinding = self._loop.create_task(self._answer_unbind(pdu))
            case command.OUTBIND | command.ALERT_NOTIFICATION:
                pass
            case _:
                self._nack(pdu.sequence, status.RINVCMDID)

    # -- asking --

    async def bind(self, body: bytes) -> None:
        answer = await self._ask(command.BIND_TRANSCEIVER, body)
        if answer.status:
            raise Unsent(f"refused the bind: {status.words(answer.status)}")
        self._pulse = self._loop.call_later(self._timings.enquire, self._enquire)

    async def submit(self, body: bytes, parcel: Parcel, *, first: bool = True) -> Pdu:
        """Submit one part of a message; after `stop`, only the further parts of a message that was begun."""
        await self._slots.take(parcel)
        try:
            if first:
                await parcel.passage.admit()
            if self.gone.done():
                raise Unsent(self.gone.result())
            if self._unbinding:
                raise Unsent("is ending the session")
            if first and self._is_stopping:  # its response might not arrive before the unbind
                raise Unsent("is being unbound")
        except BaseException:
            self._slots.give_back()
            raise
        return await self._ask(command.SUBMIT_SM, body)

    def stop(self) -> None:
        """Send no new message."""
        self._is_stopping = True

    async def wait_for_submits(self) -> None:
        """Wait until all submits are answered, for at most `close` seconds."""
        if answers := [asked.answer for asked in self._asked.values() if asked.command == command.SUBMIT_SM]:
            await asyncio.wait(answers, timeout=self._timings.close)

    async def unbind(self) -> None:
        """Unbind once all submits are answered."""
        self.stop()
        try:
            await self.wait_for_submits()
            if not self.gone.done():
                await asyncio.wait([self._ask(command.UNBIND)], timeout=self._timings.close)
        finally:
            self.end("was unbound")

    async def _answer_unbind(self, pdu: Pdu) -> None:
        """Answer the peer's unbind once all submits are answered, then close.

        Many SMSCs close the connection when they get unbind_resp, and what they have not answered by then would be
        sent again. Some answer submits only after unbind_resp.
        """
        await self.wait_for_submits()
        self.answer(pdu)
        await self.wait_for_submits()
        self.end("ended the session")

    def _enquire(self) -> None:
        """Send without waiting; a missing answer is noticed by its timeout."""
        self._ask(command.ENQUIRE_LINK)
        self._pulse = self._loop.call_later(self._timings.enquire, self._enquire)

    def _ask(self, id_: int, body: bytes = b"") -> asyncio.Future[Pdu]:
        """Send a request, which occupies the window until its answer or timeout, even if nobody waits for it."""
        self._sequence = sequence = self._sequence % SEQUENCE_MAX + 1
        answer = self._loop.create_future()
        until = self._loop.time() + self._timings.answer
        self._asked[sequence] = _Asked(id_, answer, until)
        if self._timer is None:
            self._timer = self._loop.call_at(until, self._expire)
        self._write(encode(id_, sequence, body))
        return answer

    def _answered(self, pdu: Pdu) -> None:
        asked = self._asked.get(pdu.sequence)
        if asked is None or pdu.command not in (asked.command | command.RESP, command.GENERIC_NACK):
            return  # too late, or never requested
        self._forget(pdu.sequence)
        if not asked.answer.done():
            asked.answer.set_result(pdu)

    def _expire(self) -> None:
        """Expire requests with one timer for all: where it finds none that is over, it waits for the oldest."""
        now, self._timer = self._loop.time(), None
        over = [sequence for sequence, asked in self._asked.items() if asked.until <= now]
        for sequence in over:
            self._fail(sequence, f"did not answer within {self._timings.answer:g} s")
        if over and self._heard <= now - self._timings.answer:
            self.retire(f"was silent for {self._timings.answer:g} s")
        if self._asked:
            self._timer = self._loop.call_at(next(iter(self._asked.values())).until, self._expire)

    def _fail(self, sequence: int, why: str) -> None:
        asked = self._forget(sequence)
        if not asked.answer.done():
            asked.answer.set_exception(Unanswered(why))
            asked.answer.exception()  # nobody may be waiting

    def _forget(self, sequence: int) -> _Asked:
        asked = self._asked.pop(sequence)
        if asked.command == command.SUBMIT_SM:
            self._slots.give_back()
        if self.gone.done() and not self._asked:
            self._close()
        return asked

    # -- answering, writing, ending --

    def answer(self, pdu: Pdu) -> None:
        self._write(encode(pdu.command | command.RESP, pdu.sequence))

    def acknowledge(self, pdu: Pdu, error: int) -> None:
        """Answer what was delivered."""
        self._write(encode(pdu.command | command.RESP, pdu.sequence, b"\0", error))

    def _nack(self, sequence: int, error: int) -> None:
        self._write(encode(command.GENERIC_NACK, sequence, status=error))

    def _write(self, octets: bytes) -> None:
        """Write soon: everything written in one turn of the event loop is sent in one piece."""
        if not self._unwritten:
            self._loop.call_soon(self._flush)
        self._unwritten.append(octets)

    def _flush(self) -> None:
        if self._unwritten and not self._transport.is_closing():
            self._transport.write(b"".join(self._unwritten))
        self._unwritten.clear()

    def retire(self, why: str) -> None:
        """Send nothing more, and close once every request is answered or timed out."""
        if self._unbinding or self.gone.done():
            return
        self.gone.set_result(why)
        if self._pulse:
            self._pulse.cancel()
        if not self._asked:
            self._close()

    def end(self, why: str) -> None:
        """Close now; requests without a response fail."""
        if not self.gone.done():
            self.gone.set_result(why)
        for sequence in list(self._asked):
            self._fail(sequence, why)
        self._close()

    def _close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        for timer in filter(None, (self._pulse, self._timer)):
            timer.cancel()
        self._flush()
        self._transport.close()
        self._loop.call_later(LINGER_S, self._transport.abort)
