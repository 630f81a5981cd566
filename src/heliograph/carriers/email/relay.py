"""The carrier `smtp`: sends every mail to the operator's relay."""

import asyncio
import re
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

from msgspec.structs import replace

from heliograph.carriers.contract import Callback, CallbackAnswer, CallbackTooLarge, Carrier, Parcel
from heliograph.carriers.email.connection_pool import LIMITS, Pool, PoolLimits, Prepare, Prepared, tell
from heliograph.carriers.email.provider_reports import to_reports
from heliograph.carriers.email.providers import make_provider
from heliograph.carriers.email.providers.provider import CallbackOptions, MailProvider
from heliograph.carriers.email.smtp import DEFAULT_OPTIONS, Destination, Login, SmtpOptions
from heliograph.carriers.email.tls_policy import Tls
from heliograph.carriers.http_client import UNSIGNED, Web
from heliograph.domain.delivery.outcome import Accepted, Deferred, Outcome, ProviderReport
from heliograph.domain.limits import CALLBACK_EVENTS_MAX, SECOND_MS
from heliograph.domain.setup.carrier_kinds import RelayOptions
from heliograph.inbound.policy.smtp_reply import pauses_host

TLS: dict[str, Tls] = {"none": "none", "starttls": "verified", "tls": "implicit"}
# Matches the last word of a provider's `250` reply if it looks like a message id.
_ID = re.compile(r"(?=\S*[0-9])(?![245]\.[0-9]+\.[0-9]+$)[A-Za-z0-9][\w.@+/=-]{5,199}")
PORTS = {"none": 25, "starttls": 587, "tls": 465}


class Relay(Carrier):
    """Sends through one SMTP relay, and parses callbacks if the relay is a supported mail provider."""

    def __init__(
        self,
        options: RelayOptions,
        prepare: Prepare,
        *,
        web: Web | None = None,  # for requests that callbacks need; connects only to checked addresses
        smtp_options: SmtpOptions = DEFAULT_OPTIONS,
        limits: PoolLimits = LIMITS,
    ) -> None:
        self._prepare = prepare
        self._pause_s = limits.pause_s
        self._provider = _provider(options, web or Web())
        self._final = options.final
        login = Login(username=options.username, password=options.password) if options.username else None
        self._pool = Pool(replace(smtp_options, login=login), replace(limits, per_host=options.connections))
        self._relay = Destination(
            host=options.host,
            address=options.host,
            port=options.port or PORTS[options.tls],
            tls=TLS[options.tls],
        )

    async def hand_over(self, parcel: Parcel) -> Outcome:
        started = asyncio.get_running_loop().time()
        mail = await self._prepare(parcel)
        if self._provider:
            mail = _with(mail, self._provider.along(parcel.message_id))
        outcome = await self._pool.send(self._relay, parcel, mail)
        if isinstance(outcome, Deferred) and pauses_host(outcome.detail):  # relay is shutting down: not an attempt
            outcome = replace(outcome, held=True, retry_after_ms=int(self._pause_s * SECOND_MS))
        told = tell(outcome, parcel, "smtp", started, delivered=self._final)
        if self._provider and isinstance(told, Accepted) and (id_ := id_in(told.detail["text"])):
            return replace(told, carrier_id=id_)
        return told

    def read_callback(self, callback: Callback) -> CallbackAnswer | None:
        return UNSIGNED if self._provider and self._provider.hears else None

    async def hear(self, callback: Callback) -> CallbackAnswer | None:
        provider = self._provider
        if provider is None or not provider.hears:
            return None
        genuine = await provider.authenticate(callback, partial(self.run_for, callback))
        if genuine is None:
            return UNSIGNED
        if (greeted := await provider.greet(genuine.payload)) is not None:
            return CallbackAnswer(status=200 if greeted else 503)
        told = await self.run_for(callback, _read, provider, genuine.payload)
        return CallbackAnswer(told=told, replay_id=genuine.replay_id)

    async def close(self) -> None:
        await self._pool.close()


def id_in(reply: str) -> str | None:
    """Return the provider's message id from its reply, such as `250 Ok: queued as 4x…`; None if not found."""
    last = reply.split()[-1].rpartition("=")[2].strip("<>()[]\"'.,;")
    return last if _ID.fullmatch(last) else None


def _provider(options: RelayOptions, web: Web) -> MailProvider | None:
    """Return the configured mail provider; None if the relay is not one."""
    if options.provider is None:
        return None
    given = CallbackOptions(
        secret=options.callback_secret,
        key=options.callback_key,
        topic=options.callback_topic,
        cert=options.callback_cert,
    )
    return make_provider(options.provider, given, web)


def _read(provider: MailProvider, payload: Any) -> list[ProviderReport]:
    """Return the reports in a callback. Raises CallbackTooLarge above CALLBACK_EVENTS_MAX events."""
    events = list(islice(provider.read(payload), CALLBACK_EVENTS_MAX + 1))
    if len(events) > CALLBACK_EVENTS_MAX:
        raise CallbackTooLarge
    return to_reports(provider.name, events)


def _with(mail: Prepared, fields: dict[str, str]) -> Prepared:
    """Return the mail with header fields added before our DKIM signature.

    The signature does not cover these fields, because providers remove them.
    """
    block = "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode()

    def chunks() -> Iterator[bytes]:
        yield block
        yield from mail.chunks()

    return replace(mail, chunks=chunks, size=len(block) + mail.size)
