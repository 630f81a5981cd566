"""The carrier `smtp`: every mail goes to the operator's relay."""

import asyncio
from typing import Literal

import msgspec
from msgspec.structs import replace

from heliograph.channels.carrier import Carrier, Parcel
from heliograph.channels.email.pool import LIMITS, Pool, PoolLimits, Prepare, tell
from heliograph.channels.email.smtp import MANNER, Destination, Login, Manner
from heliograph.channels.email.tls import Tls
from heliograph.rules.limits import SECOND_MS
from heliograph.rules.outcome import Deferred, Outcome
from heliograph.rules.smtp_reply import pauses_host

TLS: dict[str, Tls] = {"none": "none", "starttls": "verified", "tls": "implicit"}
PORTS = {"none": 25, "starttls": 587, "tls": 465}


class RelayOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: str  # may be private: an operator sets it
    port: int | None = None  # None: the default
    tls: Literal["none", "starttls", "tls"] = "starttls"
    username: str | None = None
    password: str = ""
    connections: int = 4
    final: bool = False  # the relay is the recipient's own: accepted means delivered


class Relay(Carrier):
    def __init__(
        self, options: RelayOptions, prepare: Prepare, *, manner: Manner = MANNER, limits: PoolLimits = LIMITS
    ) -> None:
        self._prepare = prepare
        self._pause_s = limits.pause_s
        self._final = options.final
        login = Login(username=options.username, password=options.password) if options.username else None
        self._pool = Pool(replace(manner, login=login), replace(limits, per_host=options.connections))
        self._relay = Destination(
            host=options.host,
            address=options.host,
            port=options.port or PORTS[options.tls],
            tls=TLS[options.tls],
        )

    async def hand_over(self, parcel: Parcel) -> Outcome:
        started = asyncio.get_running_loop().time()
        mail = await self._prepare(parcel)
        outcome = await self._pool.send(self._relay, parcel, mail)
        if isinstance(outcome, Deferred) and pauses_host(outcome.detail):  # it shuts down: no attempt at the recipient
            outcome = replace(outcome, held=True, retry_after_ms=int(self._pause_s * SECOND_MS))
        return tell(outcome, parcel, "smtp", started, delivered=self._final)

    async def close(self) -> None:
        await self._pool.close()
