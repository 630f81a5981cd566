"""Postmark's statistics, from our counts of recipients per UTC day. Nothing is tracked, so there are no opens."""

from collections.abc import Awaitable, Callable
from typing import Any

from heliograph.compat.call import Call
from heliograph.compat.postmark.codec import STREAM, asked, check_stream, span
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import DAY_MS
from heliograph.domain.refusals import InvalidRequest
from heliograph.storage.stats import Reached
from heliograph.web.request import Response
from heliograph.web.route import answer

UNTRACKED = (
    *("Opens", "UniqueOpens", "Tracked", "WithLinkTracking", "WithOpenTracking", "TotalTrackedLinksSent"),
    *("UniqueLinksClicked", "TotalClicks", "WithClientRecorded", "WithPlatformRecorded", "WithReadTimeRecorded"),
)


async def read_server(call: Call) -> Response:
    team = call.caller.team
    return answer(
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
    reached = Reached()
    for one in (await _days(call)).values():
        reached = reached.plus(one)
    bounced, sent = reached.bounced + reached.failed, reached.sent or 1
    return answer(
        {
            "Sent": reached.sent,
            "Bounced": bounced,
            "SMTPApiErrors": 0,
            "BounceRate": round(100 * bounced / sent, 3),
            "SpamComplaints": reached.complained,
            "SpamComplaintsRate": round(100 * reached.complained / sent, 3),
            **dict.fromkeys(UNTRACKED, 0),
        }
    )


def by_day(**names: str) -> Callable[[Call], Awaitable[Response]]:
    """Return a route handler for daily statistics; `names` maps Postmark's names to ours."""

    def told(reached: Reached) -> dict[str, int]:
        return {theirs: getattr(reached, own) for theirs, own in names.items()}

    async def tell(call: Call) -> Response:
        days, every = await _days(call), Reached()
        for one in days.values():
            every = every.plus(one)
        return answer({"Days": [{"Date": day, **told(one)} for day, one in days.items()], **told(every)})

    return tell


def untracked(*names: str) -> Callable[[Call], Awaitable[Response]]:
    async def tell(call: Call) -> Response:
        none: dict[str, Any] = {"Days": [], **dict.fromkeys(names, 0)}
        return answer(none)

    return tell


async def _days(call: Call) -> dict[str, Reached]:
    query = asked(call)
    check_stream(query.get("messagestream", STREAM))
    if "tag" in query:
        raise InvalidRequest("Figures are not counted by tag. List the messages of a tag instead.", param="tag")
    after, before = span(query)
    since = max(0, after + 1) // DAY_MS * DAY_MS
    figures = (await call.context.store.figures.overview(call.team, since, DAY_MS, ())).figures
    mails = {start: reached for (start, channel), reached in figures.items() if channel == "email" and start < before}
    return {timestamp(start)[:10]: mails[start] for start in sorted(mails)}
