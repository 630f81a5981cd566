"""The carrier `smpp`: a transceiver session with an SMSC, on which delivery receipts also arrive."""

import asyncio
import re
import ssl
import zlib
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.carriers.contract import Carrier, OutboundMessage
from heliograph.carriers.sms.smpp import command, status
from heliograph.carriers.sms.smpp.compose import build_submit_bodies, sender_address
from heliograph.carriers.sms.smpp.intake import Intake, StoreReports, StoreTexts
from heliograph.carriers.sms.smpp.pdu import (
    MalformedPdu,
    Pdu,
    decode_data_sm,
    decode_id,
    decode_short_message,
    encode_bind,
)
from heliograph.carriers.sms.smpp.receipt import normalize_submit_id, parse_incoming_text, parse_receipt
from heliograph.carriers.sms.smpp.reconnect import SmppLink
from heliograph.carriers.sms.smpp.session import TIMINGS, NoSmppResponse, NotSent, SmppSession, Timings
from heliograph.carriers.sms.smpp.throttle import SubmitThrottle
from heliograph.domain.delivery.content import SmsContent
from heliograph.domain.delivery.outcome import (
    Accepted,
    CarrierReport,
    Deferred,
    IncomingText,
    Outcome,
    Refused,
    TextPart,
    local_failure,
)
from heliograph.domain.phones.carrier_codes import OPTED_OUT
from heliograph.domain.setup.carrier_kinds import SmppOptions
from heliograph.runtime.tls_roots import system_roots

PART_ATTEMPTS_MAX = 4  # maximum attempts for a part after the first part was sent
# A later attempt may resume a partly sent message only within this time after its first part: a delivery receipt is
# discarded if the outcome of its message is not recorded within a minute.
RESUME_WINDOW_S = 50.0

_CONTENT_DECODER = msgspec.json.Decoder(SmsContent)


class _SentParts(msgspec.Struct, frozen=True):
    """The parts of a deferred message that the SMSC has already accepted."""

    expires_at: float  # event loop time
    ids: list[str]


class Smpp(Carrier):
    """Sends SMS over SMPP, and stores receipts and inbound messages."""

    def __init__(
        self,
        options: SmppOptions,
        store_reports: StoreReports,
        store_texts: StoreTexts,
        *,
        timings: Timings = TIMINGS,
        roots: ssl.SSLContext | None = None,
    ) -> None:
        self._options = options
        self._timings = timings
        self._opt_out_codes = frozenset(map(normalize_code, options.opted_out)) - {""}
        self._throttle = SubmitThrottle(options.throughput)
        self._resumable: dict[tuple[str, int], _SentParts] = {}  # by message id and position, roughly oldest first
        self._partly_sent: set[asyncio.Future[None]] = set()  # one future per message with unsent parts
        self._report_intake = Intake(store_reports)
        self._text_intake: Intake[IncomingText | TextPart] = Intake(store_texts)
        self._link = SmppLink(
            options.host,
            options.port,
            tls=(roots or system_roots()) if options.tls else None,
            bind_body=encode_bind(options.system_id, options.password, options.system_type),
            window=options.window,
            timings=timings,
            handle_inbound=self._handle_inbound,
        )

    def open(self) -> None:
        self._link.open()

    async def close(self) -> None:
        await self._report_intake.close(self._timings.close)
        await self._text_intake.close(self._timings.close)
        await self._link.stop()
        if self._partly_sent:
            await asyncio.wait(self._partly_sent, timeout=self._timings.close)
        await self._link.close()

    # -- outbound --

    async def send_message(self, message: OutboundMessage) -> Outcome:
        content = _CONTENT_DECODER.decode(message.content)
        options = self._options
        source = sender_address(content.sender(options.source_addr))
        # Equal at every attempt, so that a phone can join parts of different attempts.
        reference = zlib.crc32(message.message_id.encode()) & 0xFF
        bodies = build_submit_bodies(
            source,
            message.address,
            content.body,
            reference=reference,
            long_mode=options.long,
            validity_s=content.validity(message.seconds_left),
        )
        detail = {"carrier": "smpp", "host": options.host, "sender": source.value, "parts": len(bodies)}
        if message.uncertain and options.uncertain == "stop":
            text = "the message may have been sent, and this carrier is configured not to send it again"
            return Refused(detail=detail | local_failure("uncertain", text))
        if len(bodies) == 1:
            return await self._submit_bodies(bodies, message, detail, [])
        return await self._send_parts(bodies, message, detail)

    async def _send_parts(self, bodies: list[bytes], message: OutboundMessage, detail: dict[str, Any]) -> Outcome:
        """Send a long message; parts that an earlier attempt sent within RESUME_WINDOW_S are not repeated."""
        loop, key = asyncio.get_running_loop(), (message.message_id, message.position)
        while self._resumable and next(iter(self._resumable.values())).expires_at <= loop.time():
            del self._resumable[next(iter(self._resumable))]
        sent_parts = self._resumable.pop(key, None) or _SentParts(expires_at=loop.time() + RESUME_WINDOW_S, ids=[])
        all_sent = loop.create_future()
        all_sent.add_done_callback(self._partly_sent.discard)
        try:
            outcome = await self._submit_bodies(bodies, message, detail, sent_parts.ids, all_sent)
        finally:
            all_sent.set_result(None)
        if sent_parts.ids and isinstance(outcome, Deferred):
            self._resumable[key] = sent_parts
        return outcome

    async def _submit_bodies(
        self,
        bodies: list[bytes],
        message: OutboundMessage,
        detail: dict[str, Any],
        ids: list[str],  # ids of the parts sent so far; extended in place
        all_sent: asyncio.Future[None] | None = None,  # only for a message with several parts
    ) -> Outcome:
        first_number = len(ids) + 1
        for number, body in enumerate(bodies[len(ids) :], first_number):
            part_suffix = f" (part {number} of {len(bodies)})" if len(bodies) > 1 else ""
            try:
                response = await (
                    self._submit(body, message) if number == first_number else self._submit_further(body, message)
                )
            except NotSent as error:
                text = f"{self._options.host} {error}{part_suffix}"
                return Deferred(detail=detail | local_failure("out_of_reach", text), unreachable=number == 1)
            except NoSmppResponse as error:
                text = f"{self._options.host} {error}: the message may have been sent{part_suffix}"
                return Deferred(detail=detail | local_failure("no_answer", text), uncertain=True)
            if response.status:
                code, text = status.format_code(response.status), status.describe(response.status) + part_suffix
                if code in self._opt_out_codes:
                    return Refused(detail=detail | local_failure(OPTED_OUT, text) | {"code": code})
                return _outcome_for_status(response.status, detail | {"code": code, "text": text}, number == 1)
            ids.append(normalize_submit_id(decode_id(response.body), self._options.receipt_id))
            if all_sent:
                self._partly_sent.add(all_sent)
        detail |= {"code": status.format_code(status.ROK), "text": "accepted"}
        distinct_ids = tuple(dict.fromkeys(filter(None, ids)))  # some carriers use one id for all parts
        if len(distinct_ids) > 1:
            return Accepted(parts=distinct_ids, detail=detail)
        return Accepted(carrier_id=distinct_ids[0] if distinct_ids else None, detail=detail)

    async def _submit_further(self, body: bytes, message: OutboundMessage) -> Pdu:
        """Submit the next part of a partly sent message, with retries, if necessary on a new session."""
        for _ in range(PART_ATTEMPTS_MAX - 1):
            try:
                response = await self._submit(body, message, is_first=False)
            except NotSent:
                pass
            else:
                if status.verdict_for(response.status) not in ("throttled", "deferred", "unbound"):
                    return response
            await asyncio.sleep(self._timings.throttle_pause)
        return await self._submit(body, message, is_first=False)

    async def _submit(self, body: bytes, message: OutboundMessage, *, is_first: bool = True) -> Pdu:
        """Send one submit_sm within the rate limit and return the response."""
        session = self._link.bound or await self._link.session()
        # Only after a session exists, so that messages do not wait for an unreachable carrier
        if self._throttle.may_wait:
            await self._throttle.wait_turn(message)
            session = await self._link.session()
        response = await session.submit(body, message, is_first=is_first)
        if status.verdict_for(response.status) == "throttled":
            self._throttle.pause(self._timings.throttle_pause)
        if response.status == status.RINVBNDSTS:
            session.retire("lost the bind")
        return response

    # -- inbound --

    def _handle_inbound(self, session: SmppSession, pdu: Pdu) -> None:
        """Store the receipt or inbound message that a PDU contains."""
        try:
            decode = decode_data_sm if pdu.command == command.DATA_SM else decode_short_message
            short_message = decode(pdu.body)
            receipt = parse_receipt(short_message, self._options.receipt_id)
        except MalformedPdu:
            session.acknowledge(pdu, status.RX_P_APPN)
            return
        if receipt:
            self._report_intake.add(self._with_opt_out_reason(receipt), session, pdu)
        elif text := parse_incoming_text(short_message):
            self._text_intake.add(text, session, pdu)
        else:  # a receipt without id or state
            session.acknowledge(pdu, status.ROK)

    def _with_opt_out_reason(self, receipt: CarrierReport) -> CarrierReport:
        """Add the reason OPTED_OUT to a failed receipt whose `err` is configured as an opt-out code."""
        if receipt.report.status != "failed":
            return receipt
        detail = receipt.report.detail
        if normalize_code(str(detail.get("err", ""))) not in self._opt_out_codes:
            return receipt
        return CarrierReport(receipt.carrier_id, replace(receipt.report, detail={**detail, "reason": OPTED_OUT}))


def normalize_code(code: str) -> str:
    """Normalize an error code for comparison: a command_status to 8 hex digits, an `err` without leading zeros."""
    text = code.strip().lower()
    return status.format_code(int(text, 16)) if is_command_status(text) else text.lstrip("0")


def is_command_status(text: str) -> bool:
    """Return whether an error code is a command_status, such as `0x00000045`, rather than an `err`."""
    return re.fullmatch("0x[0-9a-f]{1,8}", text) is not None


def _outcome_for_status(command_status: int, detail: dict[str, Any], is_first: bool) -> Outcome:
    match status.verdict_for(command_status):
        case "refused":
            return Refused(detail=detail)
        case "unbound":
            return Deferred(detail=detail, unreachable=is_first)
        case _:
            return Deferred(detail=detail)
