"""The carrier `smpp`: a transceiver session with an SMSC, on which delivery receipts also arrive."""

import asyncio
import re
import ssl
import zlib
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.carriers.contract import Carrier, Parcel
from heliograph.carriers.sms.smpp import command, status
from heliograph.carriers.sms.smpp.compose import compose, sender_address
from heliograph.carriers.sms.smpp.intake import Intake, TextsToStore, ToStore
from heliograph.carriers.sms.smpp.pdu import (
    Malformed,
    Pdu,
    ShortMessage,
    bind_body,
    decode_data,
    decode_short_message,
    read_id,
)
from heliograph.carriers.sms.smpp.receipt import issued_id, read_receipt, read_text
from heliograph.carriers.sms.smpp.reconnect import SmppLink
from heliograph.carriers.sms.smpp.session import TIMINGS, SmppSession, Timings, Unanswered, Unsent
from heliograph.carriers.sms.smpp.throttle import Pace
from heliograph.domain.delivery.content import SmsContent
from heliograph.domain.delivery.outcome import (
    Accepted,
    CarrierReport,
    Deferred,
    IncomingText,
    Outcome,
    Refused,
    TextPart,
    own,
)
from heliograph.domain.phones.carrier_codes import OPTED_OUT
from heliograph.domain.setup.carrier_kinds import SmppOptions
from heliograph.runtime.tls_roots import system_roots

PART_TRIES = 4  # maximum attempts for a part after the first part was sent
# A later attempt may resume a partly sent message for this long after its first part. A receipt waits one minute for
# the outcome of its message to be recorded, so receipts of parts that were sent earlier might be lost.
RESUME_S = 50.0

_CONTENT = msgspec.json.Decoder(SmsContent)


class _SentParts(msgspec.Struct, frozen=True):
    """The parts of a deferred message that the SMSC has accepted."""

    until: float  # event loop time
    ids: list[str]


class Smpp(Carrier):
    """Sends SMS over SMPP, and stores receipts and inbound messages."""

    def __init__(
        self,
        options: SmppOptions,
        report: ToStore,
        take_texts: TextsToStore,
        *,
        timings: Timings = TIMINGS,
        roots: ssl.SSLContext | None = None,
    ) -> None:
        self._options = options
        self._timings = timings
        self._opted_out = frozenset(map(plain_code, options.opted_out)) - {""}
        self._pace = Pace(options.throughput)
        self._resumable: dict[tuple[str, int], _SentParts] = {}  # by message id and position, roughly oldest first
        self._partly_sent: set[asyncio.Future[None]] = set()  # one future per message with unsent parts
        self._intake = Intake(report)
        self._texts: Intake[IncomingText | TextPart] = Intake(take_texts)
        self._link = SmppLink(
            options.host,
            options.port,
            tls=(roots or system_roots()) if options.tls else None,
            bind=bind_body(options.system_id, options.password, options.system_type),
            window=options.window,
            timings=timings,
            deliver=self._deliver,
        )

    def open(self) -> None:
        self._link.open()

    async def close(self) -> None:
        await self._intake.close(self._timings.close)
        await self._texts.close(self._timings.close)
        await self._link.stop()
        if self._partly_sent:
            await asyncio.wait(self._partly_sent, timeout=self._timings.close)
        await self._link.close()

    # -- outbound --

    async def hand_over(self, parcel: Parcel) -> Outcome:
        content = _CONTENT.decode(parcel.content)
        options = self._options
        source = sender_address(content.sender(options.source_addr))
        # Equal at every attempt, so that a phone can join parts of different attempts.
        reference = zlib.crc32(parcel.message_id.encode()) & 0xFF
        bodies = compose(
            source,
            parcel.address,
            content.body,
            reference=reference,
            long=options.long,
            validity_s=content.validity(parcel.left_s),
        )
        detail = {"carrier": "smpp", "host": options.host, "sender": source.value, "parts": len(bodies)}
        if parcel.uncertain and options.uncertain == "stop":
            text = "it is unknown whether the message was sent, and this carrier is set not to send it again"
            return Refused(detail=detail | own("uncertain", text))
        if len(bodies) == 1:
            return await self._send(bodies, parcel, detail, [])
        return await self._send_parts(bodies, parcel, detail)

    async def _send_parts(self, bodies: list[bytes], parcel: Parcel, detail: dict[str, Any]) -> Outcome:
        """Send a long message; parts that an earlier attempt sent within RESUME_S are not repeated."""
        loop, key = asyncio.get_running_loop(), (parcel.message_id, parcel.position)
        while self._resumable and next(iter(self._resumable.values())).until <= loop.time():
            del self._resumable[next(iter(self._resumable))]
        sent = self._resumable.pop(key, None) or _SentParts(until=loop.time() + RESUME_S, ids=[])
        all_sent = loop.create_future()
        all_sent.add_done_callback(self._partly_sent.discard)
        try:
            outcome = await self._send(bodies, parcel, detail, sent.ids, all_sent)
        finally:
            all_sent.set_result(None)
        if sent.ids and isinstance(outcome, Deferred):
            self._resumable[key] = sent
        return outcome

    async def _send(
        self,
        bodies: list[bytes],
        parcel: Parcel,
        detail: dict[str, Any],
        ids: list[str],  # ids of the parts sent so far; extended in place
        all_sent: asyncio.Future[None] | None = None,  # only for a message with several parts
    ) -> Outcome:
        begin = len(ids) + 1
        for number, body in enumerate(bodies[len(ids) :], begin):
            where = f" (part {number} of {len(bodies)})" if len(bodies) > 1 else ""
            try:
                answer = await (self._submit(body, parcel) if number == begin else self._submit_further(body, parcel))
            except Unsent as why:
                text = f"{self._options.host} {why}{where}"
                return Deferred(detail=detail | own("out_of_reach", text), unreachable=number == 1)
            except Unanswered as why:
                text = f"{self._options.host} {why}: the message may have been sent{where}"
                return Deferred(detail=detail | own("no_answer", text), uncertain=True)
            if answer.status:
                code, text = status.code(answer.status), status.words(answer.status) + where
                if code in self._opted_out:
                    return Refused(detail=detail | own(OPTED_OUT, text) | {"code": code})
                return _refusal(answer.status, detail | {"code": code, "text": text}, number == 1)
            ids.append(issued_id(read_id(answer.body), self._options.receipt_id))
            if all_sent:
                self._partly_sent.add(all_sent)
        detail |= {"code": status.code(status.ROK), "text": "accepted"}
        known = tuple(dict.fromkeys(filter(None, ids)))  # some carriers use one id for all parts
        if len(known) > 1:
            return Accepted(parts=known, detail=detail)
        return Accepted(carrier_id=known[0] if known else None, detail=detail)

    async def _submit_further(self, body: bytes, parcel: Parcel) -> Pdu:
        """Submit a further part of a partly sent message, with retries, if necessary on a new session."""
        for _ in range(PART_TRIES - 1):
            try:
                answer = await self._submit(body, parcel, first=False)
            except Unsent:
                pass
            else:
                if status.verdict(answer.status) not in ("throttled", "deferred", "unbound"):
                    return answer
            await asyncio.sleep(self._timings.throttled)
        return await self._submit(body, parcel, first=False)

    async def _submit(self, body: bytes, parcel: Parcel, *, first: bool = True) -> Pdu:
        """Send one submit_sm within the rate limit and return the response."""
        session = self._link.bound or await self._link.session()
        if self._pace.limits:  # only after a session exists, so that messages do not wait for an unreachable carrier
            await self._pace.turn(parcel)
            session = await self._link.session()
        answer = await session.submit(body, parcel, first=first)
        if status.verdict(answer.status) == "throttled":
            self._pace.pause(self._timings.throttled)
        if answer.status == status.RINVBNDSTS:
            session.retire("lost the bind")
        return answer

    # -- inbound --

    def _deliver(self, session: SmppSession, pdu: Pdu) -> None:
        """Store the receipt or inbound message in a PDU."""
        try:
            sm = _decoded(pdu)
            receipt = read_receipt(sm, self._options.receipt_id)
        except Malformed:
            session.acknowledge(pdu, status.RX_P_APPN)
            return
        if receipt:
            self._intake.take(self._with_reason(receipt), session, pdu)
        elif text := read_text(sm):
            self._texts.take(text, session, pdu)
        else:  # a receipt without id or state
            session.acknowledge(pdu, status.ROK)

    def _with_reason(self, receipt: CarrierReport) -> CarrierReport:
        """Add the reason OPTED_OUT to a failed receipt whose `err` is configured as an opt-out code."""
        if receipt.report.status != "failed":
            return receipt
        detail = receipt.report.detail
        if plain_code(str(detail.get("err", ""))) not in self._opted_out:
            return receipt
        return CarrierReport(receipt.carrier_id, replace(receipt.report, detail={**detail, "reason": OPTED_OUT}))


def plain_code(given: str) -> str:
    """Normalize an error code for comparison: a command_status to 8 hex digits, an `err` without leading zeros."""
    text = given.strip().lower()
    return status.code(int(text, 16)) if is_status(text) else text.lstrip("0")


def is_status(text: str) -> bool:
    """Return whether the text is a command_status, such as `0x00000045`, rather than an `err`."""
    return re.fullmatch("0x[0-9a-f]{1,8}", text) is not None


def _decoded(pdu: Pdu) -> ShortMessage:
    return decode_data(pdu.body) if pdu.command == command.DATA_SM else decode_short_message(pdu.body)


def _refusal(code: int, detail: dict[str, Any], is_first: bool) -> Outcome:
    match status.verdict(code):
        case "refused":
            return Refused(detail=detail)
        case "unbound":
            return Deferred(detail=detail, unreachable=is_first)
        case _:
            return Deferred(detail=detail)
