"""One SMPP session: matches requests with responses, limits unanswered submits, and handles the SMSC's requests."""

import asyncio
from collections.abc import Callable
from typing import cast

import msgspec

from heliograph.carriers.connection_queue import Line
from heliograph.carriers.contract import Parcel
from heliograph.carriers.sms.smpp import command, status
from heliograph.carriers.sms.smpp.pdu import SEQUENCE_MAX, Frames, Malformed, Pdu, encode

LINGER_S = 1.0  # time for the last bytes to be sent before the connection is aborted
UNREAD_MAX = 1 << 20  # bytes that the carrier has not read yet; more than a full window


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts and intervals in seconds."""

    connect: float = 5.0  # timeout for TCP, TLS and bind together
    answer: float = 10.0  # timeout for one response
    enquire: float = 30.0  # interval between enquire_link requests
    backoff: float = 0.2  # delay before the second connection attempt, doubled for each further one
    backoff_max: float = 5.0
    throttled: float = 1.0  # pause after a throttling response
    close: float = 5.0  # timeout for outstanding responses, then for unbind


TIMINGS = Timings()


class Unsent(Exception):
    """Raised if a request was not sent."""


class Unanswered(Exception):
    """Raised if a request was sent and no response arrived."""


class _Asked(msgspec.Struct, frozen=True):
    """A request without a response."""

    command: int
    answer: asyncio.Future[Pdu]
    until: float


class SmppSession(asyncio.Protocol):
    """asyncio protocol of one SMPP connection."""

    def __init__(self, window: int, timings: Timings, deliver: Callable[["SmppSession", Pdu], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._timings = timings
        self._deliver = deliver
        self._frames = Frames()
        self._slots = Line(window)
        self._asked: dict[int, _Asked] = {}  # keyed by sequence number, oldest first, because all have the same timeout
        self._timer: asyncio.TimerHandle | None = None  # expires the oldest request
        self._sequence = 0
        self._heard = 0.0
        self._unwritten: list[bytes] = []
        self._pulse: asyncio.TimerHandle | None = None
        self._unbinding: asyncio.Task[None] | None = None  # responds to the peer's unbind
        self._is_stopping = False  # no new message may be sent
        self._is_closed = False
        # Set to the reason once no more requests can be sent.
        self.gone: asyncio.Future[str] = self._loop.create_future()

    # -- called by the event loop --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(UNREAD_MAX)

    def connection_lost(self, exc: Exception | None) -> None:
        self.end("closed the connection")

    def pause_writing(self) -> None:
        """Stop reading, so that a carrier that does not read our responses cannot send more requests."""
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
        except Malformed:  # the start of the next PDU is unknown
            self._nack(0, status.RINVCMDLEN)
            self.end("did not speak SMPP")

    def _take(self, pdu: Pdu) -> None:
        """Handle a request of the peer."""
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

    # -- our requests --

    async def bind(self, body: bytes) -> None:
        answer = await self._ask(command.BIND_TRANSCEIVER, body)
        if answer.status:
            raise Unsent(f"refused the bind: {status.words(answer.status)}")
        self._pulse = self._loop.call_later(self._timings.enquire, self._enquire)

    async def submit(self, body: bytes, parcel: Parcel, *, first: bool = True) -> Pdu:
        """Submit one part of a message and return the response.

        After `stop`, only further parts of a partly sent message are accepted. Raises Unsent or Unanswered.
        """
        await self._slots.take(parcel)
        try:
            if first:
                await parcel.passage.admit()
            if self.gone.done():
                raise Unsent(self.gone.result())
            if self._unbinding:
                raise Unsent("is ending the session")
            if first and self._is_stopping:  # the response might not arrive before the unbind
                raise Unsent("is being unbound")
        except BaseException:
            self._slots.give_back()
            raise
        return await self._ask(command.SUBMIT_SM, body)

    def stop(self) -> None:
        """Reject new messages from now on."""
        self._is_stopping = True

    async def wait_for_submits(self) -> None:
        """Wait at most `close` seconds until all submits have a response."""
        if answers := [asked.answer for asked in self._asked.values() if asked.command == command.SUBMIT_SM]:
            await asyncio.wait(answers, timeout=self._timings.close)

    async def unbind(self) -> None:
        """Wait for outstanding submits, unbind, and close the connection."""
        self.stop()
        try:
            await self.wait_for_submits()
            if not self.gone.done():
                await asyncio.wait([self._ask(command.UNBIND)], timeout=self._timings.close)
        finally:
            self.end("was unbound")

    async def _answer_unbind(self, pdu: Pdu) -> None:
        """Respond to the peer's unbind after all submits have a response, then close the connection.

        Many SMSCs close the connection on unbind_resp, and submits without a response would be sent again. Some
        SMSCs respond to submits only after unbind_resp.
        """
        await self.wait_for_submits()
        self.answer(pdu)
        await self.wait_for_submits()
        self.end("ended the session")

    def _enquire(self) -> None:
        """Send an enquire_link and schedule the next one. `_expire` detects a missing response."""
        self._ask(command.ENQUIRE_LINK)
        self._pulse = self._loop.call_later(self._timings.enquire, self._enquire)

    def _ask(self, id_: int, body: bytes = b"") -> asyncio.Future[Pdu]:
        """Send a request and return the future of its response.

        A submit occupies its window slot until the response or timeout, even if the caller was cancelled.
        """
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
            return  # the response is late or unsolicited
        self._forget(pdu.sequence)
        if not asked.answer.done():
            asked.answer.set_result(pdu)

    def _expire(self) -> None:
        """Fail requests whose timeout is over, and set the timer for the oldest remaining request.

        The session is retired if the peer sent nothing at all during the timeout.
        """
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
            asked.answer.exception()  # marks the exception as retrieved, because the caller may be cancelled

    def _forget(self, sequence: int) -> _Asked:
        """Remove a request and release its window slot; close a retired session after its last request."""
        asked = self._asked.pop(sequence)
        if asked.command == command.SUBMIT_SM:
            self._slots.give_back()
        if self.gone.done() and not self._asked:
            self._close()
        return asked

    # -- responding, writing, closing --

    def answer(self, pdu: Pdu) -> None:
        """Send a successful response without a body."""
        self._write(encode(pdu.command | command.RESP, pdu.sequence))

    def acknowledge(self, pdu: Pdu, error: int) -> None:
        """Send the response to a deliver_sm or data_sm with this status."""
        self._write(encode(pdu.command | command.RESP, pdu.sequence, b"\0", error))

    def _nack(self, sequence: int, error: int) -> None:
        self._write(encode(command.GENERIC_NACK, sequence, status=error))

    def _write(self, octets: bytes) -> None:
        """Buffer bytes; all bytes of one event loop iteration are written together."""
        if not self._unwritten:
            self._loop.call_soon(self._flush)
        self._unwritten.append(octets)

    def _flush(self) -> None:
        if self._unwritten and not self._transport.is_closing():
            self._transport.write(b"".join(self._unwritten))
        self._unwritten.clear()

    def retire(self, why: str) -> None:
        """Send no more requests, and close once every outstanding request has a response or timed out."""
        if self._unbinding or self.gone.done():
            return
        self.gone.set_result(why)
        if self._pulse:
            self._pulse.cancel()
        if not self._asked:
            self._close()

    def end(self, why: str) -> None:
        """Close immediately; outstanding requests fail with Unanswered."""
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
