"""Public ids and timestamps: ULIDs that sort by time, and ISO 8601 in UTC with milliseconds."""

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache

PREFIXES = {
    "email": "eml_",
    "sms": "sms_",
    "whatsapp": "wam_",
    "batch": "bat_",
    "verification": "vrf_",
    "event": "evt_",
    "received": "rcv_",
    "request": "req_",
    "template": "tpl_",
    "layout": "lay_",
    "domain": "dom_",
    "display_name": "dn_",
    "team": "team_",
    "webhook": "whk_",
    "approval": "apr_",
}

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_KINDS_WITH_CUSTOM_IDS = ("template", "layout", "domain", "display_name", "team")
BASE32_PAIRS = [a + b for a in _CROCKFORD for b in _CROCKFORD]  # two base-32 digits: 10 bits at a time
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?(Z|[+-][0-9]{2}:[0-9]{2})"
)


def ulid(ms: int, random80: int) -> str:
    """Return a ULID of 26 characters: 48 bits of time, 80 bits of randomness."""
    pairs, low = BASE32_PAIRS, random80 & 0xFFFFFFFFFF
    start = ulid_start(ms, random80 >> 40)
    return f"{start}{pairs[low >> 30]}{pairs[low >> 20 & 1023]}{pairs[low >> 10 & 1023]}{pairs[low & 1023]}"


def ulid_start(ms: int, high40: int) -> str:
    """Return the first 18 characters of a ULID: the time and the upper 40 random bits, `high40`."""
    p = BASE32_PAIRS
    return (
        f"{p[ms >> 40 & 1023]}{p[ms >> 30 & 1023]}{p[ms >> 20 & 1023]}{p[ms >> 10 & 1023]}{p[ms & 1023]}"
        f"{p[high40 >> 30]}{p[high40 >> 20 & 1023]}{p[high40 >> 10 & 1023]}{p[high40 & 1023]}"
    )


def ulid_ms(body: str) -> int:
    """Return the time of a ULID in ms."""
    return sum([_CROCKFORD.index(letter) << 5 * (9 - index) for index, letter in enumerate(body[:10])])


def id_pattern(kind: str) -> str:
    """Return the regular expression for ids of this kind: a ULID, or a name chosen in a setup file."""
    return f"^{PREFIXES[kind]}{'[A-Za-z0-9_]{1,64}' if kind in _KINDS_WITH_CUSTOM_IDS else f'[{_CROCKFORD}]{{26}}'}$"


def timestamp(ms: int) -> str:
    """Format a time as `2026-11-15T09:30:00.000Z`."""
    return f"{_format_seconds(ms // 1000)}.{ms % 1000:03d}Z"


@lru_cache(maxsize=1024)
def _format_seconds(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]


def parse_timestamp(text: str) -> int | None:
    """Parse an RFC 3339 time to ms; None if invalid. `t` and `z` may be lowercase; finer fractions are cut off."""
    match = _RFC3339.fullmatch(text.upper())
    if match is None:
        return None
    seconds, fraction, offset = match.groups()
    try:
        parsed = datetime.fromisoformat(seconds + offset).astimezone(UTC)
    except (ValueError, OverflowError):  # 30 February, hour 25, or a year out of range in UTC
        return None
    return (parsed - _EPOCH) // timedelta(milliseconds=1) + int((fraction or "0")[:3].ljust(3, "0"))


def parse_date_header(text: str) -> int | None:
    """Parse a date header of mail or HTTP to ms; None if it is invalid. `-0000` means UTC, not the local time zone."""
    try:
        parsed = parsedate_to_datetime(text)
        return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()) * 1000
    except (ValueError, OverflowError):
        return None
