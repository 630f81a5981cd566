"""Relative times in English, which some other services accept: "in 1 min", "in 2 hours", "in 3 days"."""

import re

from heliograph.domain.ids import timestamp
from heliograph.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

_MS_BY_UNIT = {"s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS, "w": 7 * DAY_MS}
_RELATIVE_TIME = re.compile(
    r"in (an?|[0-9]{1,4}) ?(s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?)?|d(?:ays?)?|w(?:eeks?)?)",
    re.IGNORECASE,
)


def resolve_relative_time(text: str, now: int) -> str:
    """Return the timestamp for a relative time; any other text is returned unchanged for the caller to parse."""
    match = _RELATIVE_TIME.fullmatch(" ".join(text.split()))
    if match is None:
        return text
    count = 1 if match[1].lower().startswith("a") else int(match[1])
    return timestamp(now + count * _MS_BY_UNIT[match[2][0].lower()])
