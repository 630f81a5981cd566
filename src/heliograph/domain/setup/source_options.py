"""Options of a carrier that sends directly: limits per mailbox provider, source addresses and pools of them."""

import datetime
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec

from heliograph.domain.mail.mailbox_provider import DOMAINS_BY_PROVIDER, OTHER
from heliograph.domain.setup.records import CarrierRecord
from heliograph.domain.setup.values import Ip, Positive, in_range, matching, require_items
from heliograph.domain.text import quoted
from heliograph.domain.validation import InvalidValue, parse_with

ANY_PROVIDER = "*"  # limits of each provider without limits of its own
DEFAULT_POOL = "default"
PROVIDER_NAMES = (*DOMAINS_BY_PROVIDER, OTHER, ANY_PROVIDER)
WARMUP_DAYS_MAX = 365


def read_day(text: str) -> str:
    try:
        return datetime.date.fromisoformat(text).isoformat()
    except ValueError:
        raise ValueError(f"expected a date such as 2026-12-01, got {quoted(text)}") from None


POOL_NAME = matching("[a-z0-9_-]{1,32}", "a pool name of a-z, 0-9, _ and -")
Day = Annotated[str, parse_with(read_day)]


class ProviderLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Limits for one mailbox provider, per source address; 0 means no limit."""

    per_minute: Positive = 0
    connections: Positive = 0
    messages_per_connection: Positive = 0


class Warmup(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename={"since": "from"}
):
    """Warm-up of a new source address; days are UTC."""

    since: Day  # first day of use
    days: Annotated[int, in_range(1, WARMUP_DAYS_MAX)]
    start: Positive  # messages per provider on the first day


class SourceAddress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A source IP address, with a warm-up if it is new."""

    address: Ip
    warmup: Warmup | None = None


class SourcePool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Source IP addresses from which the mail of certain teams is sent: the teams that select this pool."""

    source_ips: Annotated[list[Ip], parse_with(require_items)]
    overflow: Annotated[str, matching("[a-z0-9-]{1,64}", "a carrier id of a-z, 0-9 and -")] = ""


Source = str | SourceAddress


def address_of(source: Source | Mapping[str, Any]) -> str:
    """Return the IP address of an entry of `source_ips`."""
    if isinstance(source, str):
        return source
    return source.address if isinstance(source, SourceAddress) else str(source["address"])


def is_warming(source: Source) -> bool:
    """Return whether the entry of `source_ips` has a warm-up."""
    return isinstance(source, SourceAddress) and source.warmup is not None


def read_source(value: str | dict[str, Any]) -> str | dict[str, Any]:
    """Return an entry of `source_ips` with its address in normal form."""
    return str(ipaddress.ip_address(value)) if isinstance(value, str) else value


def read_sources(sources: list[Any]) -> list[Any]:
    addresses = [address_of(source) for source in sources]
    if repeated := next((address for address in addresses if addresses.count(address) > 1), None):
        raise ValueError(f"{repeated} occurs twice")
    return sources


def read_providers(providers: dict[str, Any]) -> dict[str, Any]:
    for name in providers:
        if name not in PROVIDER_NAMES:
            raise InvalidValue(name, f"is an unknown provider. Known providers: {', '.join(PROVIDER_NAMES)}")
    return providers


SourceEntry = Annotated[Source, parse_with(read_source)]
Sources = Annotated[list[SourceEntry], parse_with(read_sources)]
Providers = Annotated[dict[str, ProviderLimits], parse_with(read_providers)]
Pools = dict[Annotated[str, POOL_NAME], SourcePool]


def check_pools(carrier: CarrierRecord, carriers: Iterable[CarrierRecord]) -> None:
    """Raise InvalidValue if a pool names an address that is not in `source_ips`, or an unknown overflow carrier.

    `carriers`: all carriers of the instance.
    """
    addresses = [address_of(source) for source in carrier.options.get("source_ips", ())]
    overflows = {other.id for other in carriers if other.channel == "email"} - {carrier.id}
    for name, pool in carrier.options.get("pools", {}).items():
        for i, address in enumerate(pool["source_ips"]):
            if address not in addresses:
                raise InvalidValue(f"pools.{name}.source_ips[{i}]", f"{address} is not in source_ips of the carrier")
        if (overflow := pool.get("overflow")) and overflow not in overflows:
            raise InvalidValue(f"pools.{name}.overflow", f"{quoted(overflow)} is not the id of another email carrier")


def carriers_overflowing_to(id_: str, carriers: Iterable[CarrierRecord]) -> list[str]:
    """Return the ids of the carriers with a pool that overflows to this carrier."""
    return [
        carrier.id
        for carrier in carriers
        if any(pool.get("overflow") == id_ for pool in carrier.options.get("pools", {}).values())
    ]


def pool_names(carriers: Iterable[CarrierRecord]) -> list[str]:
    """Return the names of all pools, including the default pool."""
    return sorted({DEFAULT_POOL, *(name for carrier in carriers for name in carrier.options.get("pools", {}))})


def pool_error(pool: str, carriers: Iterable[CarrierRecord]) -> str:
    """Return an error if no carrier has the pool of source addresses that a team uses; empty if one has it."""
    names = pool_names(carriers)
    return "" if pool in names else f"no carrier has a pool {quoted(pool)}. Known pools: {', '.join(names)}"
