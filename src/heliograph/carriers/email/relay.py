"""The carrier `smtp`: sends every mail to the operator's relay."""

import asyncio
import re
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

from msgspec.structs import replace

from heliograph.carriers.contract import Callback, CallbackResult, CallbackTooLarge, Carrier, OutboundMessage
from heliograph.carriers.email.connection_pool import (
    LIMITS,
    ConnectionPool,
    PoolLimits,
    PreparedMail,
    PrepareMail,
    complete_outcome,
)
from heliograph.carriers.email.provider_reports import to_reports
from heliograph.carriers.email.providers import make_provider
from heliograph.carriers.email.providers.provider import CallbackOptions, MailProvider
from heliograph.carriers.email.smtp import DEFAULT_OPTIONS, Destination, Login, SmtpOptions
from heliograph.carriers.email.tls_policy import TlsMode
from heliograph.carriers.http_client import UNSIGNED_CALLBACK, CarrierHttp
from heliograph.domain.delivery.outcome import Accepted, Deferred, Outcome, ProviderReport
from heliograph.domain.limits import CALLBACK_EVENTS_MAX, SECOND_MS
from heliograph.domain.setup.carrier_kinds import RelayOptions
from heliograph.inbound.policy.smtp_reply import pauses_host

TLS_MODE_BY_SETTING: dict[str, TlsMode] = {"none": "none", "starttls": "verified", "tls": "implicit"}
# Matches the last word of a provider's `250` reply if it looks like a message id.
_MESSAGE_ID = re.compile(r"(?=\S*[0-9])(?![245]\.[0-9]+\.[0-9]+$)[A-Za-z0-9][\w.@+/=-]{5,199}")
DEFAULT_PORT_BY_SETTING = {"none": 25, "starttls": 587, "tls": 465}


class Relay(Carrier):
    """Sends through one SMTP relay, and parses callbacks if the relay is a supported mail provider."""

    def __init__(
        self,
        options: RelayOptions,
        prepare: PrepareMail,
        *,
        # For requests that a provider's callback makes necessary, such as a confirmation; refuses internal addresses
        http: CarrierHttp | None = None,
        smtp_options: SmtpOptions = DEFAULT_OPTIONS,
        limits: PoolLimits = LIMITS,
    ) -> None:
        self._prepare = prepare
        self._pause_s = limits.host_pause_s
        self._provider = _make_mail_provider(options, http or CarrierHttp())
        self._accepted_is_delivered = options.final
        login = Login(username=options.username, password=options.password) if options.username else None
        self._pool = ConnectionPool(
            replace(smtp_options, login=login), replace(limits, connections_per_host=options.connections)
        )
        self._destination = Destination(
            host=options.host,
            address=options.host,
            port=options.port or DEFAULT_PORT_BY_SETTING[options.tls],
            tls=TLS_MODE_BY_SETTING[options.tls],
        )

    async def send_message(self, message: OutboundMessage) -> Outcome:
        started_at = asyncio.get_running_loop().time()
        mail = await self._prepare(message)
        if self._provider:
            mail = _with_headers(mail, self._provider.tracking_headers(message.message_id))
        outcome = await self._pool.send(self._destination, message, mail)
        # The relay is shutting down, which does not count as an attempt
        if isinstance(outcome, Deferred) and pauses_host(outcome.detail):
            outcome = replace(outcome, held=True, retry_after_ms=int(self._pause_s * SECOND_MS))
        completed = complete_outcome(
            outcome, message, "smtp", started_at, accepted_is_delivered=self._accepted_is_delivered
        )
        if (
            self._provider
            and isinstance(completed, Accepted)
            and (id_ := provider_message_id(completed.detail["text"]))
        ):
            return replace(completed, carrier_id=id_)
        return completed

    def parse_callback(self, callback: Callback) -> CallbackResult | None:
        return UNSIGNED_CALLBACK if self._provider and self._provider.can_verify_callbacks else None

    async def parse_callback_async(self, callback: Callback) -> CallbackResult | None:
        provider = self._provider
        if provider is None or not provider.can_verify_callbacks:
            return None
        verified = await provider.authenticate(callback, partial(self.run_in_thread_if_large, callback))
        if verified is None:
            return UNSIGNED_CALLBACK
        if (confirmed := await provider.confirm_subscription(verified.payload)) is not None:
            return CallbackResult(status=200 if confirmed else 503)
        reports = await self.run_in_thread_if_large(callback, _parse_reports, provider, verified.payload)
        return CallbackResult(provider_reports=reports, replay_id=verified.replay_id)

    async def close(self) -> None:
        await self._pool.close()


def provider_message_id(reply: str) -> str | None:
    """Return the provider's message id from its reply, such as `250 Ok: queued as 4x…`; None if not found."""
    last_word = reply.split()[-1].rpartition("=")[2].strip("<>()[]\"'.,;")
    return last_word if _MESSAGE_ID.fullmatch(last_word) else None


def _make_mail_provider(options: RelayOptions, http: CarrierHttp) -> MailProvider | None:
    """Return the configured mail provider; None if the relay is an ordinary SMTP server."""
    if options.provider is None:
        return None
    callback_options = CallbackOptions(
        secret=options.callback_secret,
        key=options.callback_key,
        topic=options.callback_topic,
        cert=options.callback_cert,
    )
    return make_provider(options.provider, callback_options, http)


def _parse_reports(provider: MailProvider, payload: Any) -> list[ProviderReport]:
    """Return the reports in a callback. Raises CallbackTooLarge above CALLBACK_EVENTS_MAX events."""
    events = list(islice(provider.parse_events(payload), CALLBACK_EVENTS_MAX + 1))
    if len(events) > CALLBACK_EVENTS_MAX:
        raise CallbackTooLarge
    return to_reports(provider.name, events)


def _with_headers(mail: PreparedMail, fields: dict[str, str]) -> PreparedMail:
    """Return the mail with header fields added before our DKIM signature.

    The signature does not cover these fields, because providers remove them.
    """
    header_block = "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode()

    def chunks() -> Iterator[bytes]:
        yield header_block
        yield from mail.chunks()

    return replace(mail, chunks=chunks, size=len(header_block) + mail.size)
