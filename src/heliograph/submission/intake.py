"""One mail by SMTP: the checks that every request passes, then the same use case as `POST /v1/emails`."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from msgspec.structs import replace
from structlog.contextvars import bind_contextvars

from heliograph import metrics
from heliograph.accept.admission import check_scope
from heliograph.accept.context import Context
from heliograph.accept.email import EmailRequest, Shown, send_email
from heliograph.accept.idempotency import once
from heliograph.accept.rate import RateLimits
from heliograph.rules import idempotency
from heliograph.rules.acceptance import Answer
from heliograph.rules.address import Address
from heliograph.rules.idempotency import Retry
from heliograph.rules.limits import KIB
from heliograph.rules.refusals import (
    InternalError,
    InvalidJson,
    InvalidRequest,
    RateLimitExceeded,
    Refusal,
    ServiceUnavailable,
    TeamSuspended,
)
from heliograph.rules.request_log import subject_of, took_ms
from heliograph.rules.setup.keys import find_caller
from heliograph.rules.setup.records import Caller
from heliograph.rules.submitted import Submitted, read_submitted
from heliograph.storage.requests import LoggedRequest
from heliograph.storage.store import StoreUnavailable
from heliograph.submission.wire import HungUp, TooSlow
from heliograph.web.bodies import parse_json, to_request
from heliograph.web.status import status_of

log = structlog.get_logger()

IN_THREAD = 32 * KIB  # mails above this are read off the event loop: a hostile one takes milliseconds for each KiB
ROUTE = "SMTP"  # in counters and in the request log
SEND = ("send",)
MESSAGE_MAX = 500  # characters of a refusal that are remembered
ACCEPTED = 202


class MailIntake:
    def __init__(self, context: Context, rates: RateLimits) -> None:
        self._context = context
        self._rates = rates

    def find(self, token: str) -> Caller:
        """Who holds the key now: it may be revoked while its connection is open."""
        return find_caller(token, self._context.store.setup.current.callers, self._context.clock.now())

    def admit(self, token: str, address: str) -> tuple[str, Caller]:
        """The id of the request, and whose it is: before its mail is read."""
        id_, now = self._context.clock.new_id("req_"), self._context.clock.now()
        caller = self.find(token)
        record = caller.team.record
        self._context.state.used[caller.key.id] = now
        try:
            if record.suspended:
                raise TeamSuspended()
            check_scope(caller, SEND, address)
            turn = self._rates.take(caller.key.id, record.rate_limit, now)
            if not turn.allowed:
                raise RateLimitExceeded(
                    f"This key may send {record.rate_limit} mails a second.", retry_after=turn.wait_s
                )
        except Refusal as refusal:
            self._note_refused(id_, caller, refusal)
            raise
        return id_, caller

    async def take(
        self,
        id_: str,
        caller: Caller,
        read: Callable[[], Awaitable[bytearray]],
        recipients: list[Address],
        *,
        by_message_id: bool,
    ) -> str:
        """The id of the message, after its commit; or a Refusal."""
        refusal: Refusal
        bind_contextvars(request_id=id_)
        try:
            mail = await read()
            if len(mail) > IN_THREAD:
                submitted = await asyncio.to_thread(read_submitted, mail, recipients)
            else:
                submitted = read_submitted(mail, recipients)
            answer = await self._send(caller, submitted, len(mail), recipients if by_message_id else [])
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
            self._note_answered(id_, caller, answer)
            return subject_of(answer.body, "")
        self._note_refused(id_, caller, refusal)
        raise refusal

    async def _send(self, caller: Caller, submitted: Submitted, size: int, once_for: list[Address]) -> Answer:
        context, shown = self._context, Shown(to=submitted.to, cc=submitted.cc)
        fields = _fields(submitted)
        request = to_request(fields, EmailRequest)
        key = idempotency.read_key(submitted.keys)
        if key is None and once_for and submitted.message_id:
            # Relays hand over a mail once for each recipient: those are others, not the same again.
            key = " ".join([submitted.message_id, *sorted(address.normal for address in once_for)])
        retry = None if key is None else Retry(key, ROUTE, fields, size)
        return await once(
            context,
            caller.key.id,
            retry,
            lambda retry_key: send_email(context, caller, request, retry_key, shown),
        )

    def _note_answered(self, id_: str, caller: Caller, answer: Answer) -> None:
        state, setup = self._context.state, self._context.store.setup.current
        if answer.replayed:
            metrics.replayed.inc()
        if state.requests.keeps(caller.team.record.ref, setup.platform.log_requests_per_second):
            request = self._logged(id_, caller, ACCEPTED)
            state.requests.note(replace(request, replayed=int(answer.replayed), subject=subject_of(answer.body, "")))

    def _note_refused(self, id_: str, caller: Caller, refusal: Refusal) -> None:
        state, status = self._context.state, status_of(type(refusal))
        metrics.refused(refusal.code).inc()
        request = self._logged(id_, caller, status)
        state.requests.waiting.append(
            replace(request, code=refusal.code, message=refusal.message[:MESSAGE_MAX], refused=1)
        )

    def _logged(self, id_: str, caller: Caller, status: int) -> LoggedRequest:
        now = self._context.clock.now()
        return LoggedRequest(
            id=id_,
            at=now,
            team=caller.team.record.ref,
            key=caller.key.id,
            route=ROUTE,
            status=status,
            took_ms=took_ms(id_, now),
        )


def _fields(submitted: Submitted) -> dict[str, Any]:
    """As the body of POST /v1/emails would be."""
    fields = dict(submitted.request)
    for name, text in submitted.json.items():
        try:
            value = parse_json(text.encode(), name)
        except InvalidJson as error:
            raise InvalidRequest(f"The header for {name} is not JSON: {error.message}", param=name) from None
        fields[name] = fields[name] | value if name in fields and isinstance(value, dict) else value
    return fields
