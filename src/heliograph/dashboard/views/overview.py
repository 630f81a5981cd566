"""A team's first page: what became of its messages, what needs attention, and a test message to begin with."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import chain

import msgspec
from msgspec.structs import replace

from heliograph.accept.email import EmailRecord, EmailRequest, send_email
from heliograph.dashboard import attention, charts
from heliograph.dashboard.charts import Bucket, Chart, Series
from heliograph.dashboard.views import live
from heliograph.dashboard.visit import Answer, Page, Redirect, Visit
from heliograph.rules.limits import DAY_MS, HOUR_MS
from heliograph.rules.refusals import Refusal
from heliograph.rules.setup.records import Team
from heliograph.storage.figures import QUEUE_MOST, Reached

CHANNELS: dict[str, str] = {"email": "Email", "sms": "SMS", "whatsapp": "WhatsApp"}
SPANS = {"day": "24 hours", "month": "30 days", "year": "12 months"}
MAGIC = "delivered@simulator.test"

ByChannel = dict[str, list[Reached]]  # one for each bucket


async def send_test(visit: Visit) -> Answer:
    """An email of the team's own, by the same way as the API's."""
    to = visit.form.get("to", "").strip() or MAGIC
    request = EmailRequest(
        to=to,
        from_=_sender(visit.team),
        subject=f"A test message from {visit.team.record.name}"[:200],
        text="It works. This message was sent from the overview of the dashboard.",
    )
    caller = replace(visit.caller, entry=lambda id_: visit.entry("message.test", id_))
    try:
        done = await send_email(visit.context, caller, request, None)
    except Refusal as refusal:
        return await show(visit, to, _in_words(refusal))
    id_ = msgspec.json.decode(done.body, type=EmailRecord).id
    return Redirect(
        f"{visit.base}/messages/{id_}", "The test message is on its way. What the simulator delivers lies in the Inbox."
    )


def _in_words(refusal: Refusal) -> str:
    return refusal.message if refusal.fix in refusal.message else f"{refusal.message}. {refusal.fix}"


def _sender(team: Team) -> str | None:
    """The platform's in the sandbox; else of the first approved domain, if there is one."""
    domains = [] if team.sandbox else team.approved_domains()
    return f"hello@{domains[0].name}" if domains else None


async def show(visit: Visit, to: str = MAGIC, wrong: str = "") -> Page:
    now, team, store = visit.context.clock.now(), visit.team, visit.context.store
    span, channel = visit.query.get("span", ""), visit.query.get("channel", "")
    span = span if span in SPANS else "day"
    channel = channel if channel in CHANNELS else ""
    times = charts.buckets(span, now, visit.zone)
    since, width = times[0].start, DAY_MS if span == "year" else HOUR_MS
    hooks = [hook.id for hook in team.webhooks if hook.enabled]
    stream = await live.team_stream_address(visit, "overview")
    seen = await store.figures.overview(team.record.ref, since, width, hooks)
    account = await store.ledger.account(team.record.ref)
    operator = visit.may("operator")
    series = _fold(seen.figures, times, width, [channel] if channel else list(CHANNELS))
    values = {
        "live": stream,
        "span": span,
        "spans": SPANS,
        "channel": channel,
        "channels": CHANNELS,
        "total": _sum(chain(*series.values())),
        "by_channel": [(CHANNELS[one], _sum(counts)) for one, counts in series.items()],
        "sends": _sends(series, times),
        "rates": _rates(series, times),
        "rate": rate,
        "percent": charts.percent,
        "account": account,
        "used": attention.used_this_month(account, now),
        "waiting": seen.waiting,
        "many": QUEUE_MOST,
        "age_s": (now - seen.oldest_due) // 1000 if seen.oldest_due is not None else 0,
        "concerns": [
            *attention.of_instance(visit.setup, visit.store.circuits.current.values(), operator),
            *attention.of_team(
                team, visit.store.reputation.current.get(team.record.id), account, seen.failing, now, operator
            ),
        ],
        "magic": MAGIC,
        "to": to,
        "wrong": wrong,
    }
    return Page("overview.html", values, 400 if wrong else 200)


def rate(part: int, whole: int) -> float | None:
    """In percent; outcomes of an earlier hour's sends make it no more than 100. None: nothing was sent."""
    return min(100.0, 100 * part / whole) if whole else None


def _sum(counts: Iterable[Reached]) -> Reached:
    return reduce(Reached.plus, counts, Reached())


def _fold(
    found: dict[tuple[int, str], Reached], times: Sequence[Bucket], width: int, channels: Iterable[str]
) -> ByChannel:
    """A sum is of the bar in which its middle lies: summer time may move its beginning by an hour."""
    starts = [time.start for time in times]
    folded = {channel: [Reached()] * len(times) for channel in channels}
    for (start, channel), counts in found.items():
        if channel in folded:
            index = bisect_right(starts, start + width // 2) - 1
            folded[channel][index] = folded[channel][index].plus(counts)
    return folded


def _sends(series: ByChannel, times: Sequence[Bucket]) -> Chart:
    sent = [Series(CHANNELS[channel], channel, [one.sent for one in counts]) for channel, counts in series.items()]
    return charts.bars("Sent", times, sent, text=charts.count, least=2)


def _rates(series: ByChannel, times: Sequence[Bucket]) -> list[Chart]:
    """Bounces and complaints are of emails alone, so they are shown where there are emails."""
    wanted = [("Delivery rate", "delivered", list(series), 100.0)]
    if "email" in series:
        wanted += [("Bounce rate", "bounced", ["email"], 1.0), ("Complaint rate", "complained", ["email"], 0.1)]
    made = []
    for title, state, channels, least in wanted:
        each = [_sum(column) for column in zip(*(series[channel] for channel in channels), strict=True)]
        rates = [rate(getattr(one, state), one.sent) for one in each]
        made.append(charts.bars(title, times, [Series(title, state, rates)], text=charts.percent, least=least))
    return made
