"""Accepts mail submitted by SMTP: the checks of every API request, then the use case of `POST /v1/emails`."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog
from structlog.contextvars import bind_contextvars

from heliograph.accept.admission import Admission
from heliograph.accept.context import Context
from heliograph.accept.email import EmailRecord, EmailRequest, HeaderOverrides, send_email
from heliograph.accept.idempotency import send_once
from heliograph.domain.limits import KIB
from heliograph.domain.mail.address import Address
from heliograph.domain.mail.attachments import configured_extra_types
from heliograph.domain.mail.smtp_to_request import SubmittedMail, parse_submitted
from heliograph.domain.refusals import (
    SETUP_DEPENDENT_REFUSALS,
    UNKNOWN_KEY,
    InternalError,
    Refusal,
    ServiceUnavailable,
)
from heliograph.domain.sending import idempotency
from heliograph.domain.sending.acceptance import SendResult
from heliograph.domain.sending.idempotency import KeyedRequest
from heliograph.domain.setup.records import Caller
from heliograph.runtime import metrics
from heliograph.smtp.wire import ConnectionClosed, ReadTimeout
from heliograph.storage.store import StoreUnavailable
from heliograph.web.bodies import submitted_fields, to_request
from heliograph.web.status import status_of

log = structlog.get_logger()

# Larger mails are parsed in a thread, because a malicious one can take milliseconds per KiB
THREAD_PARSE_MIN = 32 * KIB
ROUTE = "SMTP"  # route name in metrics and the request log
SEND_SCOPES = ("send",)
ACCEPTED_STATUS = 202


class MailIntake:
    """Authenticates SMTP clients and accepts their mails."""

    def __init__(self, context: Context, admission: Admission) -> None:
        self._context = context
        self._admission = admission

    async def find_caller(self, token: bytes) -> Caller:
        """Return the caller of the API key; raises a Refusal if the key is invalid or was revoked since authentication.

        The setup is reloaded before a key is rejected.
        """
        setup = self._context.store.setup.current
        try:
            return self._admission.find(token)
        except Refusal as refusal:
            if not await self._admission.refresh_setup(refusal, token, setup):
                raise
            return self._admission.find(token)

    async def authorize(self, token: bytes, address: str) -> tuple[str, Caller]:
        """Authorize and rate-limit a mail before it is read; return the request id and the caller."""
        request_id = self._context.clock.new_id("req_")
        try:
            caller, _ = await self._admission.authenticate_and_admit(token, SEND_SCOPES, address, "email")
        except Refusal as refusal:
            with suppress(*UNKNOWN_KEY):  # the team of an unknown key is unknown, so there is no log for the refusal
                self._log_refusal(request_id, self._admission.find(token), refusal)
            raise
        return request_id, caller.with_capture()

    async def accept(
        self,
        request_id: str,
        caller: Caller,
        read_mail: Callable[[], Awaitable[bytearray]],
        recipients: list[Address],
        *,
        dedup_by_message_id: bool,
    ) -> str:
        """Accept a mail; return the message id after the commit, or raise a Refusal.

        `dedup_by_message_id`: the idempotency key is derived from the mail's Message-ID and its recipients.
        """
        refusal: Refusal
        setup = self._context.store.setup.current
        bind_contextvars(request_id=request_id)
        try:
            mail, extra_types = await read_mail(), configured_extra_types(setup.platform, caller.team)
            if len(mail) > THREAD_PARSE_MIN:
                submitted = await asyncio.to_thread(parse_submitted, mail, recipients, extra_types)
            else:
                submitted = parse_submitted(mail, recipients, extra_types)
            dedup_recipients = recipients if dedup_by_message_id else []
            try:
                sent = await self._send(caller, submitted, len(mail), dedup_recipients)
            except SETUP_DEPENDENT_REFUSALS:
                if not await self._context.store.setup.refresh_if_newer(setup):
                    raise
                caller = self._admission.newest_caller(caller).with_capture()
                sent = await self._send(caller, submitted, len(mail), dedup_recipients)
        except (ConnectionClosed, ReadTimeout):
            raise
        except Refusal as error:
            refusal = error
        except StoreUnavailable as error:
            log.error("store unavailable", request_id=request_id, error=str(error))
            refusal = ServiceUnavailable(retry_after=2)
        except Exception:
            log.exception("internal error", request_id=request_id)
            refusal = InternalError()
        else:
            if sent.replayed:
                metrics.idempotent_replays.inc()
            if self._admission.should_log(caller):
                self._admission.log_request(
                    request_id, caller, ROUTE, ACCEPTED_STATUS, subject=sent.id, replayed=sent.replayed
                )
            return sent.id
        self._log_refusal(request_id, caller, refusal)
        raise refusal

    async def _send(
        self, caller: Caller, submitted: SubmittedMail, size: int, dedup_recipients: list[Address]
    ) -> SendResult[EmailRecord]:
        """Send the mail; if its idempotency key was used before, return the stored response.

        A mail without a key gets one made from its Message-ID and `dedup_recipients`.
        """
        context, fields = self._context, submitted_fields(submitted)
        header_overrides = HeaderOverrides(to=submitted.to, cc=submitted.cc, alternatives=submitted.alternatives)
        request = to_request(fields, EmailRequest)
        key = idempotency.parse_key(submitted.idempotency_keys)
        if key is None and dedup_recipients and submitted.message_id:
            # relays submit a mail once per recipient; with the recipients in the key, these are not duplicates
            key = " ".join([submitted.message_id, *sorted(address.normal for address in dedup_recipients)])
        keyed_request = None if key is None else KeyedRequest(key, ROUTE, fields, size)
        return await send_once(
            context,
            caller.key.id,
            keyed_request,
            lambda retry_key: send_email(context, caller, request, retry_key, header_overrides),
        )

    def _log_refusal(self, request_id: str, caller: Caller, refusal: Refusal) -> None:
        """Record a refusal in the metrics and the team's request log."""
        metrics.refusals[refusal.code].inc()
        self._admission.log_request(request_id, caller, ROUTE, status_of(type(refusal)), refusal=refusal)
