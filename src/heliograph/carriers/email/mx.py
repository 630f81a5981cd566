"""The carrier `mx`: sends directly to the mail exchangers of the recipient's domain."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from random import Random
from typing import Any

from msgspec.structs import replace

from heliograph.carriers.contract import Carrier, OutboundMessage
from heliograph.carriers.email.connection_pool import (
    LIMITS,
    ConnectionPool,
    PoolLimits,
    PreparedMail,
    PrepareMail,
    complete_outcome,
)
from heliograph.carriers.email.mta_sts import FetchPolicy, PolicyCache, https_policy_fetcher
from heliograph.carriers.email.mx_lookup import BlockedAddress, MxRecords, MxResolver, NullMx, parse_networks
from heliograph.carriers.email.provider_limiter import ApplyExchange, Held, ProviderLimiter, SendPermit
from heliograph.carriers.email.smtp import DEFAULT_OPTIONS, Destination, SmtpOptions
from heliograph.carriers.email.tls_policy import DANE_TA, TlsaRecord, TlsMode
from heliograph.domain.delivery.outcome import ConnectionFailure, Deferred, Outcome, Refused
from heliograph.domain.mail.mailbox_provider import provider_of
from heliograph.domain.setup.carrier_kinds import MxOptions
from heliograph.domain.setup.source_options import address_of, is_warming
from heliograph.inbound.policy.smtp_reply import is_rate_refusal
from heliograph.runtime.resolver import DnsTimeout, NameNotFound, QueryDns
from heliograph.runtime.tls_roots import system_roots

ADDRESSES_PER_ATTEMPT_MAX = 5  # maximum addresses tried in one delivery attempt
NEW_ADDRESS_MAX_S = 120.0  # seconds after which no further address is tried
# Delay before a host with no free connection is tried again; mail for other hosts is sent meanwhile
BUSY_HOST_RETRY_S = 10.0


def dns_query_function(server: str | None) -> QueryDns:
    """Return a DNS query function that uses `server` (host:port), or the system's resolver if None."""
    return MxResolver(server, (), Random()).values


class Mx(Carrier):
    """Delivers to MX hosts, secured with DANE, MTA-STS or opportunistic TLS."""

    def __init__(
        self,
        options: MxOptions,
        prepare: PrepareMail,
        *,
        smtp_options: SmtpOptions = DEFAULT_OPTIONS,
        limits: PoolLimits = LIMITS,
        fetch: FetchPolicy | None = None,
        random: Random | None = None,
        carrier: str = "mx",
        exchange: ApplyExchange | None = None,
        now: Callable[[], int] = lambda: 0,
    ) -> None:
        """Create the carrier; `fetch` downloads MTA-STS policies, by default over HTTPS.

        `exchange`: reads and updates the provider rates shared by all processes; required for provider limits, pools
        and warm-up. `now`: the time in ms.
        """
        self._options = options
        self._prepare = prepare
        self._random = random or Random()
        self._resolver = MxResolver(options.resolver or None, parse_networks(options.allow_private), self._random)
        self._policy_cache = PolicyCache(
            self._resolver, fetch or https_policy_fetcher(self._resolver, smtp_options.roots or system_roots())
        )
        limits = replace(limits, connections_per_host=options.per_host, busy_retry_s=BUSY_HOST_RETRY_S)
        self._pool = ConnectionPool(replace(smtp_options, helo=options.helo), limits)
        self._sources = [address_of(source) for source in options.source_ips]
        self._limiter: ProviderLimiter | None = None  # None without provider limits, pools and warm-up
        if exchange and (options.providers or options.pools or any(map(is_warming, options.source_ips))):
            self._limiter = ProviderLimiter(options, carrier, exchange, now, self._random.shuffle)

    async def send_message(self, message: OutboundMessage) -> Outcome:
        started_at = asyncio.get_running_loop().time()
        domain = message.address.rpartition("@")[2]
        try:
            mx_records = await self._resolver.mx_records(domain)
            outcome = await self._try_addresses(domain, mx_records, message)
        except NullMx:
            outcome = _refuse(domain, f"{domain} accepts no mail (null MX)", "5.1.10", bounced=True)
        except NameNotFound:
            text = f"the domain {domain} does not exist or accepts no mail"
            outcome = replace(_refuse(domain, text, "5.1.2", bounced=True), absent=True)
        except DnsTimeout as error:
            outcome = _defer(domain, f"the mail servers of {domain} cannot be looked up ({error})", "unreachable")
        return complete_outcome(outcome, message, "mx", started_at, accepted_is_delivered=True)

    async def close(self) -> None:
        await self._pool.close()
        if self._limiter:
            await self._limiter.close()

    async def _try_addresses(self, domain: str, mx_records: MxRecords, message: OutboundMessage) -> Outcome:
        """Try the addresses in order until a server accepts or refuses the mail, and return that outcome.

        If none does, or a limit ends the attempt, return the last outcome of the first kind that occurred: deferral
        by a server, deferral for an internal reason (`held`), any other outcome.
        """
        deadline = asyncio.get_running_loop().time() + NEW_ADDRESS_MAX_S
        outcomes: list[Outcome] = []
        mail: PreparedMail | None = None
        async with aclosing(self._targets(domain, mx_records)) as targets:
            async for target in targets:
                if isinstance(target, Destination):
                    if self._limiter:
                        outcome = await self._send_within_limits(self._limiter, domain, target, message)
                    else:
                        mail = mail or await self._prepare(message)
                        outcome = await self._pool.send(target, message, mail)
                    if not isinstance(outcome, Deferred) or "uncertain" in outcome.detail:
                        return _with_tried_hosts(outcomes, outcome)
                    # Only the host is unreachable, not this carrier
                    outcomes.append(replace(outcome, unreachable=False))
                    if self._limiter and (outcome.detail.get("reason") or is_rate_refusal(outcome.detail)):
                        break  # the same limits apply to the other hosts
                else:
                    outcomes.append(target)
                if len(outcomes) == ADDRESSES_PER_ATTEMPT_MAX or asyncio.get_running_loop().time() > deadline:
                    break
        deferrals = [outcome for outcome in outcomes if isinstance(outcome, Deferred)]
        server_deferrals = [outcome for outcome in deferrals if not outcome.held]
        last_outcome = (server_deferrals or deferrals or outcomes)[-1]
        return _with_tried_hosts([outcome for outcome in outcomes if outcome is not last_outcome], last_outcome)

    async def _send_within_limits(
        self, limiter: ProviderLimiter, domain: str, target: Destination, message: OutboundMessage
    ) -> Outcome:
        """Send from an address that the provider's limits permit; return Deferred with `held` if they permit none.

        A critical message whose attempt is refused because of the rate is sent from another address at once.
        """
        permit_or_deferral = await limiter.admit(provider_of(domain, target.host), target.address, message)
        if isinstance(permit_or_deferral, Deferred):
            return replace(permit_or_deferral, detail=_detail(target.host, "") | permit_or_deferral.detail)
        outcome = await self._send_admitted(limiter, permit_or_deferral, target, message)
        if message.priority == "critical" and is_rate_refusal(outcome.detail):
            permit_or_deferral = await limiter.admit(permit_or_deferral.provider, target.address, message)
            if not isinstance(permit_or_deferral, Deferred):
                return await self._send_admitted(limiter, permit_or_deferral, target, message)
        return outcome

    async def _send_admitted(
        self, limiter: ProviderLimiter, permit: SendPermit, target: Destination, message: OutboundMessage
    ) -> Outcome:
        try:
            outcome = await self._pool.send(
                replace(target, source_address=permit.source),
                limiter.with_recheck(message, permit),
                await self._prepare(message),
                permit.gate,
                permit.mails_per_connection,
            )
        except Held as held:
            return replace(held.outcome, detail=_detail(target.host, "") | held.outcome.detail)
        finally:
            permit.quota.pause.end_sending(permit)
        limiter.report(permit, outcome.detail)
        return outcome

    async def _targets(
        self, domain: str, mx_records: MxRecords
    ) -> AsyncGenerator[Destination | Refused | Deferred, None]:
        """Yield each destination to try, in order; for a host that cannot be tried, yield the outcome instead."""
        policy = await self._policy_cache.enforced_policy(domain)
        requires_verified_tls = policy is not None or self._options.tls == "required"
        for host in mx_records.hosts:
            if policy and not policy.allows(host):
                yield _defer(host, f"the MTA-STS policy of {domain} does not name {host}", "encryption")
                continue
            try:
                addresses = await self._resolver.addresses(host)
                tlsa_records = (
                    await self._resolver.tlsa_records(host, self._options.port) if mx_records.dnssec_validated else None
                )
            except DnsTimeout as error:
                yield _defer(host, f"the address of {host} cannot be looked up ({error})", "unreachable")
            except BlockedAddress:
                yield _refuse(host, f"{host} resolves to an address that is not permitted", "5.4.4")
            except NameNotFound:
                # A domain without MX and address accepts no mail; an MX host without an address may be a mistake.
                if not mx_records.has_mx:
                    raise
                yield _refuse(host, f"{host} has no address", "5.4.4")
            else:
                destination = _destination_with_tls(
                    host, self._options.port, domain, tlsa_records, requires_verified_tls
                )
                for address in addresses:
                    yield self._with_address(destination, address)

    def _with_address(self, destination: Destination, address: str) -> Destination | Deferred:
        """Return `destination` with this address and a source IP of the same family; Deferred if no such IP exists."""
        if self._limiter:  # the limiter chooses the source address
            return replace(destination, address=address)
        sources = [ip for ip in self._sources if (":" in ip) == (":" in address)]
        if self._sources and not sources:
            return _defer(destination.host, f"no address in source_ips can reach {address}", "not_ready")
        source = self._random.choice(sources) if sources else None
        return replace(destination, address=address, source_address=source)


def _destination_with_tls(
    host: str, port: int, domain: str, tlsa_records: tuple[TlsaRecord, ...] | None, requires_verified_tls: bool
) -> Destination:
    """Return a destination with the TLS requirements of the host; the caller adds the address.

    Validated TLSA records require TLS even if none is usable (RFC 7672): `tlsa_records` is then empty, not None.
    """
    tls: TlsMode
    if tlsa_records:
        tls = "dane"
    elif requires_verified_tls:
        tls = "verified"
    else:
        tls = "opportunistic" if tlsa_records is None else "encrypted"
    certificate_domain = domain if any(tlsa_record.usage == DANE_TA for tlsa_record in tlsa_records or ()) else None
    return Destination(
        host=host,
        address="",
        port=port,
        tls=tls,
        tlsa_records=tlsa_records or (),
        certificate_domain=certificate_domain,
    )


def _with_tried_hosts(earlier_outcomes: list[Outcome], outcome: Outcome) -> Outcome:
    """Add the hosts tried before to the outcome's detail, for the timeline."""
    if not earlier_outcomes:
        return outcome
    tried_hosts = [{name: earlier.detail[name] for name in ("host", "address", "text")} for earlier in earlier_outcomes]
    return replace(outcome, detail={**outcome.detail, "tried": tried_hosts})


def _detail(host: str, text: str, enhanced: str | None = None) -> dict[str, Any]:
    return {"host": host, "address": None, "tls": None, "code": None, "enhanced": enhanced, "text": text}


def _defer(host: str, text: str, trouble: ConnectionFailure) -> Deferred:
    return Deferred(detail={**_detail(host, text), "trouble": trouble})


def _refuse(host: str, text: str, enhanced: str, *, bounced: bool = False) -> Refused:
    return Refused(detail=_detail(host, text, enhanced), bounced=bounced)
