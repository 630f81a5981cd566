"""The carrier `mx`: sends directly to the mail exchangers of the recipient's domain."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from random import Random
from typing import Any

from msgspec.structs import replace

from heliograph.carriers.contract import Carrier, Parcel
from heliograph.carriers.email.connection_pool import LIMITS, Pool, PoolLimits, Prepare, Prepared, tell
from heliograph.carriers.email.mta_sts import Fetch, Policies, https_fetch
from heliograph.carriers.email.mx_lookup import Exchange, Forbidden, NullMx, Resolver, networks
from heliograph.carriers.email.smtp import DEFAULT_OPTIONS, Destination, SmtpOptions
from heliograph.carriers.email.tls_policy import DANE_TA, Pin, Tls
from heliograph.domain.delivery.outcome import Deferred, Outcome, Refused, Trouble
from heliograph.domain.setup.carrier_kinds import MxOptions
from heliograph.runtime.resolver import Ask, DnsSilent, Unknown
from heliograph.runtime.tls_roots import system_roots

TRIES_MAX = 5  # maximum addresses tried in one delivery attempt
TRIES_S = 120.0  # seconds after which no further address is tried
AGAIN_S = 10.0  # delay before a host with no free connection is tried again; mail for other hosts is sent meanwhile


def asking(server: str | None) -> Ask:
    """Return a DNS query function that uses `server` (host:port), or the system's resolver if None."""
    return Resolver(server, (), Random()).values


class Mx(Carrier):
    """Delivers to MX hosts, secured with DANE, MTA-STS or opportunistic TLS."""

    def __init__(
        self,
        options: MxOptions,
        prepare: Prepare,
        *,
        smtp_options: SmtpOptions = DEFAULT_OPTIONS,
        limits: PoolLimits = LIMITS,
        fetch: Fetch | None = None,
        random: Random | None = None,
    ) -> None:
        """Create the carrier; `fetch` downloads MTA-STS policies, by default over HTTPS."""
        self._options = options
        self._prepare = prepare
        self._random = random or Random()
        self._resolver = Resolver(options.resolver or None, networks(options.allow_private), self._random)
        self._policies = Policies(
            self._resolver, fetch or https_fetch(self._resolver, smtp_options.roots or system_roots())
        )
        limits = replace(limits, per_host=options.per_host, again_s=AGAIN_S)
        self._pool = Pool(replace(smtp_options, helo=options.helo), limits)

    async def hand_over(self, parcel: Parcel) -> Outcome:
        started = asyncio.get_running_loop().time()
        domain = parcel.address.rpartition("@")[2]
        try:
            exchange = await self._resolver.exchange(domain)
            mail = await self._prepare(parcel)
            outcome = await self._ask_each(domain, exchange, parcel, mail)
        except NullMx:
            outcome = _unasked(domain, f"{domain} takes no mail (null MX)", "5.1.10", bounced=True)
        except Unknown:
            text = f"there is no domain {domain} that takes mail"
            outcome = replace(_unasked(domain, text, "5.1.2", bounced=True), absent=True)
        except DnsSilent as error:
            outcome = _later(domain, f"DNS does not say who takes mail for {domain} ({error})", "unreachable")
        return tell(outcome, parcel, "mx", started, delivered=True)

    async def close(self) -> None:
        await self._pool.close()

    async def _ask_each(self, domain: str, exchange: Exchange, parcel: Parcel, mail: Prepared) -> Outcome:
        """Try the addresses in order until a server accepts or refuses the mail, or a limit is reached.

        If none does, return the last outcome, preferably a deferral, and preferably one that is not `held`.
        """
        late = asyncio.get_running_loop().time() + TRIES_S
        tried: list[Outcome] = []
        async with aclosing(self._doors(domain, exchange)) as doors:
            async for door in doors:
                if isinstance(door, Destination):
                    outcome = await self._pool.send(door, parcel, mail)
                    if not isinstance(outcome, Deferred) or "uncertain" in outcome.detail:
                        return _after(tried, outcome)
                    tried.append(replace(outcome, unreachable=False))  # only the host is unreachable, not this carrier
                else:
                    tried.append(door)
                if len(tried) == TRIES_MAX or asyncio.get_running_loop().time() > late:
                    break
        put_off = [outcome for outcome in tried if isinstance(outcome, Deferred)]
        said = [outcome for outcome in put_off if not outcome.held]
        last = (said or put_off or tried)[-1]
        return _after([outcome for outcome in tried if outcome is not last], last)

    async def _doors(self, domain: str, exchange: Exchange) -> AsyncGenerator[Destination | Refused | Deferred, None]:
        """Yield each destination to try, in order, or the outcome for a host that cannot be tried."""
        policy = await self._policies.enforced(domain)
        strict = policy is not None or self._options.tls == "required"
        for host in exchange.hosts:
            if policy and not policy.allows(host):
                yield _later(host, f"the MTA-STS policy of {domain} does not name {host}", "encryption")
                continue
            try:
                addresses = await self._resolver.addresses(host)
                pins = await self._resolver.pins(host, self._options.port) if exchange.secure else None
            except DnsSilent as error:
                yield _later(host, f"DNS does not say where {host} is ({error})", "unreachable")
            except Forbidden:
                yield _unasked(host, f"{host} is at an address that no mail may go to", "5.4.4")
            except Unknown:
                if not exchange.listed:
                    raise  # a domain without MX and address accepts no mail; for an MX host it may be a mistake
                yield _unasked(host, f"{host} has no address", "5.4.4")
            else:
                way = _secured(host, self._options.port, domain, pins, strict)
                for address in addresses:
                    yield self._door(way, address)

    def _door(self, way: Destination, address: str) -> Destination | Deferred:
        """Return `way` with this address and a source IP of the same family; Deferred if there is no such IP."""
        sources = [ip for ip in self._options.source_ips if (":" in ip) == (":" in address)]
        if self._options.source_ips and not sources:
            return _later(way.host, f"none of source_ips reaches {address}", "not_ready")
        source = self._random.choice(sources) if sources else None
        return replace(way, address=address, source=source)


def _secured(host: str, port: int, domain: str, pins: tuple[Pin, ...] | None, strict: bool) -> Destination:
    """Return a destination, without an address, with the TLS requirements of the host.

    Validated TLSA records require TLS even if none is usable (RFC 7672): `pins` is then empty, not None.
    """
    tls: Tls = "dane" if pins else "verified" if strict else "opportunistic" if pins is None else "encrypted"
    named = domain if any(pin.usage == DANE_TA for pin in pins or ()) else None
    return Destination(host=host, address="", port=port, tls=tls, pins=pins or (), domain=named)


def _after(tried: list[Outcome], outcome: Outcome) -> Outcome:
    """Add the previously tried hosts to the outcome's detail, for the timeline."""
    if not tried:
        return outcome
    before = [{name: other.detail[name] for name in ("host", "address", "text")} for other in tried]
    return replace(outcome, detail={**outcome.detail, "tried": before})


def _detail(host: str, text: str, enhanced: str | None = None) -> dict[str, Any]:
    return {"host": host, "address": None, "tls": None, "code": None, "enhanced": enhanced, "text": text}


def _later(host: str, text: str, trouble: Trouble) -> Deferred:
    return Deferred(detail={**_detail(host, text), "trouble": trouble})


def _unasked(host: str, text: str, enhanced: str, *, bounced: bool = False) -> Refused:
    return Refused(detail=_detail(host, text, enhanced), bounced=bounced)
