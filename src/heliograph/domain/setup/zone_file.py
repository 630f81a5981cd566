"""A sending domain's records as people enter them: names within the zone, long texts in strings, a zone file; whether
there is a public name to write into them, and when the service looks for them."""

import re
from collections.abc import Sequence
from ipaddress import ip_address

from heliograph.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from heliograph.domain.setup.domain_records import Record

STRING_MAX = 255  # characters of one string of a TXT record (RFC 1035, 3.3)
TTL_S = 3600
# After a change: until when, and how often, the records are looked up.
LOOKS = (
    (2 * MINUTE_MS, 5 * SECOND_MS),
    (10 * MINUTE_MS, 15 * SECOND_MS),
    (HOUR_MS, MINUTE_MS),
    (3 * DAY_MS, 10 * MINUTE_MS),
)
_PRIVATE = ("localhost", "localdomain", "local", "internal", "lan", "home", "home.arpa", "invalid")
NO_HOST = "mail-host.invalid"  # in records, where nobody said how this service is called
_SHORT = re.compile(r"[a-z]{2,3}")  # the second level of co.uk, com.au


def next_look(since: int, now: int) -> int | None:
    """Return when to look again for records that were changed
    at `since`; None: with the round that all domains have.
    """
    return next((now + every for until, every in LOOKS if now - since < until), None)


def is_public(host: str) -> bool:
    """Tell whether mail servers elsewhere could find this host by its name."""
    name = host.lower().removesuffix(".")
    if "." not in name or name.endswith(tuple(f".{private}" for private in _PRIVATE)):
        return False
    return not is_address(name)


def is_address(host: str) -> bool:
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def zones(domain: str) -> list[str]:
    """Return the zones that could hold the domain's records: the domain and what is above it, but for the top."""
    labels = domain.split(".")
    return [".".join(labels[at:]) for at in range(max(1, len(labels) - 1))]


def likely_zone(domain: str) -> str:
    """Guess, where nobody has asked DNS, what one registers, as far as that shows without the Public Suffix List."""
    labels = domain.split(".")
    is_deep = len(labels) > 2 and len(labels[-1]) == 2 and bool(_SHORT.fullmatch(labels[-2]))
    return ".".join(labels[-3 if is_deep else -2 :])


def within(name: str, zone: str) -> str:
    """Return the name as a panel for the zone wants it: without the zone, and @ for the zone itself."""
    return "@" if name == zone else name.removesuffix(f".{zone}")


def strings(value: str) -> list[str]:
    """Cut a TXT's value into strings that DNS can carry."""
    return [value[at : at + STRING_MAX] for at in range(0, len(value), STRING_MAX)] or [""]


def quoted_strings(value: str) -> str:
    """Quote the strings as zone files want it, and panels that do not split by themselves."""
    escaped = (part.replace("\\", "\\\\").replace('"', '\\"') for part in strings(value))
    return " ".join(f'"{part}"' for part in escaped)


def mx_parts(value: str) -> tuple[str, str]:
    """Split an MX value into priority and host."""
    priority, _, host = value.partition(" ")
    return priority, host


def zone_file(domain: str, zone: str, records: Sequence[Record]) -> str:
    """Write a file to be imported into the zone (RFC 1035, 5.1)."""
    lines = [
        f"; Records that {domain} needs to send mail. Import them into the zone {zone}.",
        f"$ORIGIN {zone}.",
        f"$TTL {TTL_S}",
        *(f"{within(one.name, zone)}\tIN\t{one.type}\t{_data(one)}" for one in records),
    ]
    return "\n".join(lines) + "\n"


def _data(record: Record) -> str:
    return quoted_strings(record.value) if record.type == "TXT" else f"{record.value}."
