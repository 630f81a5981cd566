"""Formats DNS records for DNS panels and zone files; recognises public host names; schedules the DNS checks."""

import re
from collections.abc import Sequence
from ipaddress import ip_address

from heliograph.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from heliograph.domain.setup.domain_records import Record

STRING_MAX = 255  # characters of one string of a TXT record (RFC 1035, 3.3)
TTL_S = 3600
PLATFORM_TTL_S = 300  # TTL of records in our own zone: a new key is used only after this time
# Check intervals after a change of the records: (age of the change up to which the interval applies, interval)
CHECK_INTERVALS = (
    (2 * MINUTE_MS, 5 * SECOND_MS),
    (10 * MINUTE_MS, 15 * SECOND_MS),
    (HOUR_MS, MINUTE_MS),
    (3 * DAY_MS, 10 * MINUTE_MS),
)
_PRIVATE_DOMAINS = ("localhost", "localdomain", "local", "internal", "lan", "home", "home.arpa", "invalid")
PLACEHOLDER_HOST = "mail-host.invalid"  # placeholder in records if the service has no configured host name
_SHORT_LABEL = re.compile(r"[a-z]{2,3}")  # second-level labels such as those of co.uk and com.au


def next_check(since: int, now: int) -> int | None:
    """Return the time of the next check of DNS records that were changed at `since`.

    None if the frequent checks are over and only the regular check of all domains follows.
    """
    return next((now + interval for age_limit, interval in CHECK_INTERVALS if now - since < age_limit), None)


def is_public(host: str) -> bool:
    """Return whether remote mail servers could resolve this host name."""
    name = host.lower().removesuffix(".")
    if "." not in name or name.endswith(tuple(f".{private}" for private in _PRIVATE_DOMAINS)):
        return False
    return not is_address(name)


def is_address(host: str) -> bool:
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def candidate_zones(domain: str) -> list[str]:
    """Return the zones that could hold the domain's records: the domain and its parents below the top-level domain."""
    labels = domain.split(".")
    return [".".join(labels[start:]) for start in range(max(1, len(labels) - 1))]


def likely_zone(domain: str) -> str:
    """Guess the registered domain without DNS queries and without the Public Suffix List."""
    labels = domain.split(".")
    is_deep = len(labels) > 2 and len(labels[-1]) == 2 and bool(_SHORT_LABEL.fullmatch(labels[-2]))
    return ".".join(labels[-3 if is_deep else -2 :])


def relative_name(name: str, zone: str) -> str:
    """Return the name as entered in a DNS panel of the zone: without the zone, @ for the zone itself."""
    return "@" if name == zone else name.removesuffix(f".{zone}")


def split_txt(value: str) -> list[str]:
    """Split a TXT value into strings of at most 255 characters."""
    return [value[start : start + STRING_MAX] for start in range(0, len(value), STRING_MAX)] or [""]


def quoted_strings(value: str) -> str:
    """Return the TXT strings in quotes, for zone files and for panels that do not split long values."""
    escaped = (part.replace("\\", "\\\\").replace('"', '\\"') for part in split_txt(value))
    return " ".join(f'"{part}"' for part in escaped)


def mx_parts(value: str) -> tuple[str, str]:
    """Split the value of an MX record into priority and host."""
    priority, _, host = value.partition(" ")
    return priority, host


def zone_file(domain: str, zone: str, records: Sequence[Record]) -> str:
    """Return the records as a zone file to import into `zone` (RFC 1035, 5.1)."""
    lines = [
        f"; DNS records that {domain} needs to send email. Import them into the zone {zone}.",
        f"$ORIGIN {zone}.",
        f"$TTL {TTL_S}",
        *(f"{relative_name(record.name, zone)}\tIN\t{record.type}\t{_record_data(record)}" for record in records),
    ]
    return "\n".join(lines) + "\n"


def platform_zone_file(records: Sequence[Record]) -> str:
    """Return a zone file with the records of our own zone, with complete names (RFC 1035, 5.1)."""
    lines = [f"{record.name}.\t{PLATFORM_TTL_S}\tIN\t{record.type}\t{_record_data(record)}" for record in records]
    return "\n".join(lines)


def _record_data(record: Record) -> str:
    return quoted_strings(record.value) if record.type == "TXT" else f"{record.value}."
