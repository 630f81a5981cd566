"""Compatibility API for Postmark, statistics, computed from our numbers of recipients per UTC day.

Opens and clicks are not tracked.
"""

from collections.abc import Awaitable, Callable
from functools import reduce
from typing import Any

from heliograph.compat.call import Call
from heliograph.compat.postmark.codec import STREAM, check_stream, read_query, time_range
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import DAY_MS
from heliograph.domain.refusals import InvalidRequest
from heliograph.storage.stats import StateCounts
from heliograph.web.request import Response
from heliograph.web.route import json_response

# fields of the overview about opens and clicks
UNTRACKED = (
    *("Opens", "UniqueOpens", "Tracked", "WithLinkTracking", "WithOpenTracking", "TotalTrackedLinksSent"),
    *("UniqueLinksClicked", "TotalClicks", "WithClientRecorded", "WithPlatformRecorded", "WithReadTimeRecorded"),
)


async def read_server(call: Call) -> Response:
    team = call.caller.team
    return json_response(
        {
            "ID": call.team,
            "Name": team.record.name,
            "ApiTokens": [],  # only hashes of API keys are stored
            "ServerLink": f"{call.context.base_url}/dashboard/teams/{team.record.id}",
            "Color": "Blue",
            "SmtpApiActivated": True,
            "RawEmailEnabled": False,
            "DeliveryType": "Sandbox" if team.sandbox else "Live",
            "InboundAddress": "",
            "InboundHash": "",
            "InboundSpamThreshold": 0,
            "PostFirstOpenOnly": False,
            "TrackOpens": False,
            "TrackLinks": "None",
            "IncludeBounceContentInHook": False,
            "EnableSmtpApiErrorHooks": False,
        }
    )


async def overview(call: Call) -> Response:
    total = reduce(StateCounts.plus, (await _daily_counts(call)).values(), StateCounts())
    bounced, sent = total.bounced + total.failed, total.sent or 1
    return json_response(
        {
            "Sent": total.sent,
            "Bounced": bounced,
            "SMTPApiErrors": 0,
            "BounceRate": round(100 * bounced / sent, 3),
            "SpamComplaints": total.complained,
            "SpamComplaintsRate": round(100 * total.complained / sent, 3),
            **dict.fromkeys(UNTRACKED, 0),
        }
    )


def by_day(**names: str) -> Callable[[Call], Awaitable[Response]]:
    """Return a handler for daily statistics. `names`: Postmark's name of a count → the name in StateCounts."""

    def to_client_names(counts: StateCounts) -> dict[str, int]:
        return {client_name: getattr(counts, own_name) for client_name, own_name in names.items()}

    async def handler(call: Call) -> Response:
        days = await _daily_counts(call)
        total = reduce(StateCounts.plus, days.values(), StateCounts())
        return json_response(
            {
                "Days": [{"Date": day, **to_client_names(counts)} for day, counts in days.items()],
                **to_client_names(total),
            }
        )

    return handler


def empty_stats(*names: str) -> Callable[[Call], Awaitable[Response]]:
    """Return a handler for statistics of opens or clicks, which are empty. `names`: fields for the totals."""

    async def handler(call: Call) -> Response:
        empty: dict[str, Any] = {"Days": [], **dict.fromkeys(names, 0)}
        return json_response(empty)

    return handler


async def _daily_counts(call: Call) -> dict[str, StateCounts]:
    query = read_query(call)
    check_stream(query.get("messagestream", STREAM))
    if "tag" in query:
        raise InvalidRequest(
            "Statistics by tag are not available. List the messages with this tag instead.", param="tag"
        )
    after, before = time_range(query)
    since = max(0, after + 1) // DAY_MS * DAY_MS
    totals = (await call.context.store.stats.overview(call.team, since, DAY_MS, ())).counts
    email_counts = {
        start: counts for (start, channel), counts in totals.items() if channel == "email" and start < before
    }
    return {timestamp(start)[:10]: email_counts[start] for start in sorted(email_counts)}
