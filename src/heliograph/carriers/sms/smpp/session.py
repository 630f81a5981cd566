"""One SMPP session: matches requests with responses, limits unanswered submits, and handles the SMSC's requests."""

import asyncio
from collections.abc import Callable
from typing import cast

import msgspec

from heliograph.carriers.connection_queue import PrioritySemaphore
from heliograph.carriers.contract import OutboundMessage
from heliograph.carriers.sms.smpp import command, status
from heliograph.carriers.sms.smpp.pdu import SEQUENCE_MAX, MalformedPdu, Pdu, PduReader, encode_pdu

LINGER_S = 1.0  # time for the last bytes to be sent before the connection is aborted
WRITE_BUFFER_MAX = 1 << 20  # bytes that wait until the carrier reads them; a full window of submits is smaller


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts and intervals in seconds."""

    connect: float = 5.0  # timeout for TCP, TLS and bind together
    response: float = 10.0  # timeout for one response
    enquire_interval: float = 30.0  # interval between enquire_link requests
    backoff: float = 0.2  # delay before the second connection attempt, doubled for each further one
    backoff_max: float = 5.0
    throttle_pause: float = 1.0  # pause after a throttling response
    close: float = 5.0  # timeout for outstanding responses, then for unbind


TIMINGS = Timings()


class NotSent(Exception):
    """Raised if a request was not sent, so that it can be repeated safely."""


class NoSmppResponse(Exception):
    """Raised if a request was sent and no response arrived; the message may have been sent."""


class _PendingRequest(msgspec.Struct, frozen=True):
    """A request that has no response yet."""

    command: int
    response: asyncio.Future[Pdu]
    deadline: float


class SmppSession(asyncio.Protocol):
    """asyncio protocol of one SMPP connection."""

    def __init__(self, window: int, timings: Timings, handle_inbound: Callable[["SmppSession", Pdu], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._timings = timings
        self._handle_inbound = handle_inbound
        self._reader = PduReader()
        self._slots = PrioritySemaphore(window)
        # Keyed by sequence number, oldest first, because all have the same timeout
        self._pending: dict[int, _PendingRequest] = {}
        self._expiry_timer: asyncio.TimerHandle | None = None  # expires the oldest request
        self._sequence = 0
        self._received_at = 0.0
        self._unwritten: list[bytes] = []
        self._enquire_timer: asyncio.TimerHandle | None = None
        self._unbind_response: asyncio.Task[None] | None = None  # responds to the peer's unbind
        self._is_stopping = False  # no new message may be sent
        self._is_closed = False
        # Set to the reason once no more requests can be sent.
        self.ended: asyncio.Future[str] = self._loop.create_future()

    # -- called by the event loop --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_BUFFER_MAX)

    def connection_lost(self, exc: Exception | None) -> None:
        self.end("closed the connection")

    def pause_writing(self) -> None:
        """Stop reading, so that an SMSC that does not read our responses cannot send more requests."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        now = self._loop.time()
        try:
            for pdu in self._reader.feed(data):
                self._received_at = now
                if pdu.command & command.RESP:
                    self._handle_response(pdu)
                else:
                    self._handle_request(pdu)
        except MalformedPdu:  # the start of the next PDU is unknown
            self._nack(0, status.RINVCMDLEN)
            self.end("sent invalid SMPP data")

    def _handle_request(self, pdu: Pdu) -> None:
        match pdu.command:
            case command.DELIVER_SM | command.DATA_SM:
                self._handle_inbound(self, pdu)
            case command.ENQUIRE_LINK:
                self.respond(pdu)
            case command.UNBIND if self._unbind_response:
                self.respond(pdu)
            case command.UNBIND:
                self._unbind_response = self._loop.create_task(self._respond_to_unbind(pdu))
            case command.OUTBIND | command.ALERT_NOTIFICATION:
                pass
            case _:
                self._nack(pdu.sequence, status.RINVCMDID)

    # -- our requests --

    async def bind(self, body: bytes) -> None:
        response = await self._request(command.BIND_TRANSCEIVER, body)
        if response.status:
            raise NotSent(f"refused the bind: {status.describe(response.status)}")
        self._enquire_timer = self._loop.call_later(self._timings.enquire_interval, self._enquire)

    async def submit(self, body: bytes, message: OutboundMessage, *, is_first: bool = True) -> Pdu:
        """Submit one part of a message and return the response.

        After `stop`, only further parts of a partly sent message are accepted. Raises NotSent or, if no response
        arrived, NoSmppResponse.
        """
        await self._slots.acquire(message)
        try:
            if is_first:
                await message.hooks.before_send()
            if self.ended.done():
                raise NotSent(self.ended.result())
            if self._unbind_response:
                raise NotSent("is ending the session")
            if is_first and self._is_stopping:  # the response might not arrive before the unbind
                raise NotSent("is being unbound")
        except BaseException:
            self._slots.release()
            raise
        return await self._request(command.SUBMIT_SM, body)

    def stop(self) -> None:
        """Reject new messages from now on."""
        self._is_stopping = True

    async def wait_for_submits(self) -> None:
        """Wait until all submits have a response, at most for the seconds in `Timings.close`."""
        if responses := [
            request.response for request in self._pending.values() if request.command == command.SUBMIT_SM
        ]:
            await asyncio.wait(responses, timeout=self._timings.close)

    async def unbind(self) -> None:
        """Wait for outstanding submits, unbind, and close the connection."""
        self.stop()
        try:
            await self.wait_for_submits()
            if not self.ended.done():
                await asyncio.wait([self._request(command.UNBIND)], timeout=self._timings.close)
        finally:
            self.end("was unbound")

    async def _respond_to_unbind(self, pdu: Pdu) -> None:
        """Respond to the peer's unbind, then close the connection. Wait for outstanding submits before and after.

        Before, because many SMSCs close the connection on unbind_resp, and submits without a response would be sent
        again. After, because some SMSCs respond to submits only after unbind_resp.
        """
        await self.wait_for_submits()
        self.respond(pdu)
        await self.wait_for_submits()
        self.end("ended the session")

    def _enquire(self) -> None:
        """Send an enquire_link and schedule the next one. `_fail_expired` detects that its response is missing."""
        self._request(command.ENQUIRE_LINK)
        self._enquire_timer = self._loop.call_later(self._timings.enquire_interval, self._enquire)

    def _request(self, command_id: int, body: bytes = b"") -> asyncio.Future[Pdu]:
        """Send a request and return the future of its response.

        A submit occupies its window slot until the response or timeout, even if the caller was cancelled.
        """
        self._sequence = sequence = self._sequence % SEQUENCE_MAX + 1
        response = self._loop.create_future()
        deadline = self._loop.time() + self._timings.response
        self._pending[sequence] = _PendingRequest(command_id, response, deadline)
        if self._expiry_timer is None:
            self._expiry_timer = self._loop.call_at(deadline, self._fail_expired)
        self._write(encode_pdu(command_id, sequence, body))
        return response

    def _handle_response(self, pdu: Pdu) -> None:
        request = self._pending.get(pdu.sequence)
        if request is None or pdu.command not in (request.command | command.RESP, command.GENERIC_NACK):
            return  # the response is late or unsolicited
        self._remove_pending(pdu.sequence)
        if not request.response.done():
            request.response.set_result(pdu)

    def _fail_expired(self) -> None:
        """Fail requests whose timeout is over, and set the timer for the oldest remaining request.

        The session is retired if the peer sent nothing at all during the timeout.
        """
        now, self._expiry_timer = self._loop.time(), None
        expired = [sequence for sequence, request in self._pending.items() if request.deadline <= now]
        for sequence in expired:
            self._fail(sequence, f"did not answer within {self._timings.response:g} s")
        if expired and self._received_at <= now - self._timings.response:
            self.retire(f"sent nothing for {self._timings.response:g} s")
        if self._pending:
            self._expiry_timer = self._loop.call_at(next(iter(self._pending.values())).deadline, self._fail_expired)

    def _fail(self, sequence: int, reason: str) -> None:
        request = self._remove_pending(sequence)
        if not request.response.done():
            request.response.set_exception(NoSmppResponse(reason))
            request.response.exception()  # marks the exception as retrieved, because the caller may be cancelled

    def _remove_pending(self, sequence: int) -> _PendingRequest:
        """Remove a request and release its window slot; close a retired session after its last request."""
        request = self._pending.pop(sequence)
        if request.command == command.SUBMIT_SM:
            self._slots.release()
        if self.ended.done() and not self._pending:
            self._close()
        return request

    # -- responding, writing, closing --

    def respond(self, pdu: Pdu) -> None:
        """Send a successful response without a body."""
        self._write(encode_pdu(pdu.command | command.RESP, pdu.sequence))

    def acknowledge(self, pdu: Pdu, status_code: int) -> None:
        """Send the response to a deliver_sm or data_sm with this status."""
        self._write(encode_pdu(pdu.command | command.RESP, pdu.sequence, b"\0", status_code))

    def _nack(self, sequence: int, status_code: int) -> None:
        self._write(encode_pdu(command.GENERIC_NACK, sequence, status=status_code))

    def _write(self, data: bytes) -> None:
        """Buffer bytes; all bytes of one event loop iteration are written together."""
        if not self._unwritten:
            self._loop.call_soon(self._flush)
        self._unwritten.append(data)

    def _flush(self) -> None:
        if self._unwritten and not self._transport.is_closing():
            self._transport.write(b"".join(self._unwritten))
        self._unwritten.clear()

    def retire(self, reason: str) -> None:
        """Send no more requests, and close the session once every outstanding request has a response or timed out."""
        if self._unbind_response or self.ended.done():
            return
        self.ended.set_result(reason)
        if self._enquire_timer:
            self._enquire_timer.cancel()
        if not self._pending:
            self._close()

    def end(self, reason: str) -> None:
        """Close the session immediately; outstanding requests fail with NoSmppResponse."""
        if not self.ended.done():
            self.ended.set_result(reason)
        for sequence in list(self._pending):
            self._fail(sequence, reason)
        self._close()

    def _close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        for timer in filter(None, (self._enquire_timer, self._expiry_timer)):
            timer.cancel()
        self._flush()
        self._transport.close()
        self._loop.call_later(LINGER_S, self._transport.abort)
