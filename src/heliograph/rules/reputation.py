"""The reputation guard: how a team's mail is received, and when it must warn or stop (issue 3, part 6).

The window is the newest hours that hold 1,000 sends, and never more than 7 days: a busy team is judged by what it
does now, a small one by its week. A send is one recipient that a carrier took or that bounced at hand-over. A bounce
or complaint counts in the hour of its own send, however late it comes, so that no rate is measured against
other people's sends; it is a hard bounce (`bounced`), not a `failed`.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from heliograph.rules.limits import DAY_MS, HOUR_MS

SENDS_MIN = 200  # below this no rate means anything
WINDOW_SENDS = 1000
WINDOW_MS = 7 * DAY_MS

# In thousandths of the sends, each inclusive.
BOUNCE_WARN, BOUNCE_PAUSE = 50, 100
COMPLAINT_WARN, COMPLAINT_PAUSE = 1, 5

Standing = Literal["ok", "warn", "pause"]


class Hour(msgspec.Struct, frozen=True, kw_only=True):
    """What one team sent in one hour, and what came back of it."""

    at: int  # its start, ms
    sends: int = 0
    bounces: int = 0
    complaints: int = 0


def judge(sends: int, bounces: int, complaints: int) -> Standing:
    if sends < SENDS_MIN:
        return "ok"
    if bounces * 1000 >= BOUNCE_PAUSE * sends or complaints * 1000 >= COMPLAINT_PAUSE * sends:
        return "pause"
    if bounces * 1000 >= BOUNCE_WARN * sends or complaints * 1000 >= COMPLAINT_WARN * sends:
        return "warn"
    return "ok"


def recent(hours: Iterable[Hour], now: int, resumed_at: int = 0) -> Hour:
    """The sum over the window; of an hour before `resumed_at` nothing counts, or a resumed team would stop at once."""
    since = max(now - WINDOW_MS, resumed_at)
    sum = Hour(at=now)
    for hour in sorted(hours, key=lambda hour: hour.at, reverse=True):
        if hour.at < since or sum.sends >= WINDOW_SENDS:
            break
        sum = Hour(
            at=hour.at,
            sends=sum.sends + hour.sends,
            bounces=sum.bounces + hour.bounces,
            complaints=sum.complaints + hour.complaints,
        )
    return sum


def hour_of(at: int) -> int:
    """The start of the hour that a send at `at` counts in."""
    return at - at % HOUR_MS
