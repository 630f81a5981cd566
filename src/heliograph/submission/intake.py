"""Accepts a mail submitted by SMTP: the checks of every API request, then the use case of `POST /v1/emails`."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog
from structlog.contextvars import bind_contextvars

from heliograph.accept.admission import Admission
from heliograph.accept.context import Context
from heliograph.accept.email import EmailRecord, EmailRequest, Shown, send_email
from heliograph.accept.idempotency import send_once
from heliograph.domain.limits import KIB
from heliograph.domain.mail.address import Address
from heliograph.domain.mail.attachments import more_types
from heliograph.domain.mail.smtp_to_request import Submitted, read_submitted
from heliograph.domain.refusals import OF_SETUP, InternalError, InvalidApiKey, Refusal, ServiceUnavailable
from heliograph.domain.sending import idempotency
from heliograph.domain.sending.acceptance import Sent
from heliograph.domain.sending.idempotency import Retry
from heliograph.domain.setup.records import Caller
from heliograph.runtime import metrics
from heliograph.smtp.wire import HungUp, TooSlow
from heliograph.storage.store import StoreUnavailable
from heliograph.web.bodies import submitted_fields, to_request
from heliograph.web.status import status_of

log = structlog.get_logger()

IN_THREAD = 32 * KIB  # mails above this size are parsed in a thread: a malicious one takes milliseconds per KiB
ROUTE = "SMTP"  # route name in metrics and the request log
SEND = ("send",)
ACCEPTED = 202


class MailIntake:
    """Authenticates SMTP clients and accepts their mails."""

    def __init__(self, context: Context, door: Admission) -> None:
        self._context = context
        self._door = door

    async def find(self, token: bytes) -> Caller:
        """Return the current holder of the API key, which may be revoked while the connection is open.

        Raises a Refusal if the key is invalid. The setup is reloaded before a key is rejected.
        """
        seen = self._context.store.setup.current
        try:
            return self._door.find(token)
        except Refusal as refusal:
            if not await self._door.learned(refusal, token, seen):
                raise
            return self._door.find(token)

    async def admit(self, token: bytes, address: str) -> tuple[str, Caller]:
        """Authorize and rate-limit a request before its mail is read; return the request id and the caller."""
        id_ = self._context.clock.new_id("req_")
        try:
            caller, _ = await self._door.enter(token, SEND, address)
        except Refusal as refusal:
            with suppress(InvalidApiKey):  # an unknown key has no team to log the refusal for
                self._note_refused(id_, self._door.find(token), refusal)
            raise
        return id_, caller.catching()

    async def take(
        self,
        id_: str,
        caller: Caller,
        read: Callable[[], Awaitable[bytearray]],
        recipients: list[Address],
        *,
        by_message_id: bool,
    ) -> str:
        """Accept a mail and return the message id after the commit, or raise a Refusal.

        `read` reads the mail. `by_message_id`: treat the Message-ID with the recipients as idempotency key.
        """
        refusal: Refusal
        seen = self._context.store.setup.current
        bind_contextvars(request_id=id_)
        try:
            mail, more = await read(), more_types(seen.platform, caller.team)
            if len(mail) > IN_THREAD:
                submitted = await asyncio.to_thread(read_submitted, mail, recipients, more)
            else:
                submitted = read_submitted(mail, recipients, more)
            once_for = recipients if by_message_id else []
            try:
                answer = await self._send(caller, submitted, len(mail), once_for)
            except OF_SETUP:
                if not await self._context.store.setup.learned_since(seen):
                    raise
                caller = self._door.newest(caller).catching()
                answer = await self._send(caller, submitted, len(mail), once_for)
        except (HungUp, TooSlow):
            raise
        except Refusal as error:
            refusal = error
        except StoreUnavailable as error:
            log.error("store unavailable", request_id=id_, error=str(error))
            refusal = ServiceUnavailable(retry_after=2)
        except Exception:
            log.exception("internal error", request_id=id_)
            refusal = InternalError()
        else:
            if answer.replayed:
                metrics.replayed.inc()
            if self._door.keeps(caller):
                self._door.note(id_, caller, ROUTE, ACCEPTED, subject=answer.id, replayed=answer.replayed)
            return answer.id
        self._note_refused(id_, caller, refusal)
        raise refusal

    async def _send(
        self, caller: Caller, submitted: Submitted, size: int, once_for: list[Address]
    ) -> Sent[EmailRecord]:
        """Send the mail, or replay the response to its idempotency key; `once_for`: recipients in the derived key."""
        context, fields = self._context, submitted_fields(submitted)
        shown = Shown(to=submitted.to, cc=submitted.cc, alternatives=submitted.alternatives)
        request = to_request(fields, EmailRequest)
        key = idempotency.read_key(submitted.keys)
        if key is None and once_for and submitted.message_id:
            # Relays submit a mail once per recipient, so the key includes the recipients: these are not duplicates.
            key = " ".join([submitted.message_id, *sorted(address.normal for address in once_for)])
        retry = None if key is None else Retry(key, ROUTE, fields, size)
        return await send_once(
            context,
            caller.key.id,
            retry,
            lambda retry_key: send_email(context, caller, request, retry_key, shown),
        )

    def _note_refused(self, id_: str, caller: Caller, refusal: Refusal) -> None:
        """Record a refusal in the metrics and the team's request log."""
        metrics.refused[refusal.code].inc()
        self._door.note(id_, caller, ROUTE, status_of(type(refusal)), refusal=refusal)
