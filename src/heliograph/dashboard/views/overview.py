"""Overview of a team: message statistics, alerts, and a form for a first test message."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from itertools import chain
from typing import Literal
from urllib.parse import urlencode

import msgspec
from msgspec.structs import replace

from heliograph.accept.email import EmailRequest, send_email
from heliograph.dashboard import alerts, charts
from heliograph.dashboard.charts import Bucket, Chart, Series, Shape
from heliograph.dashboard.page_request import Answer, Page, Redirect, Visit
from heliograph.dashboard.render import number, short
from heliograph.dashboard.views import live
from heliograph.domain.delivery.magic_recipients import is_magic
from heliograph.domain.delivery.routing import simulated_channels
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import DAY_MS, HOUR_MS
from heliograph.domain.mail.reputation import MIN_SENDS, judge_share, warned_from
from heliograph.domain.refusals import Refusal
from heliograph.domain.setup.records import Team
from heliograph.storage.stats import QUEUE_MOST, Reached

CHANNELS: dict[str, str] = {"email": "Email", "sms": "SMS", "whatsapp": "WhatsApp"}
SPANS = {"day": "24 hours", "month": "30 days", "year": "12 months"}
FEW = 20  # a rate of fewer messages per bar is not meaningful
MAGIC = "delivered@simulator.test"
STATES = ("delivered", "read", "bounced", "complained", "failed")  # columns of the table after `sent`
# Statistics of emails only: (title, state, name of the rate in the reputation check).
BY_EMAIL: tuple[tuple[str, str, Literal["bounces", "complaints"]], ...] = (
    ("Bounce rate", "bounced", "bounces"),
    ("Complaint rate", "complained", "complaints"),
)

ByChannel = dict[str, list[Reached]]  # channel → counts, one for each bucket


async def send_test(visit: Visit) -> Answer:
    """Send a test email from the team, through the same code as the API."""
    to = visit.form.get("to", "").strip() or MAGIC
    request = EmailRequest(
        to=to,
        from_=_sender(visit.team),
        subject=f"A test message from {visit.team.record.name}"[:200],
        text="It works. This message was sent from the overview of the dashboard.",
    )
    caller = replace(visit.caller, entry=lambda id_: visit.entry("message.test", id_))
    try:
        sent = await send_email(visit.context, caller, request, None)
    except Refusal as refusal:
        return await show(visit, to, _in_words(refusal))
    told = "The test message is on its way."
    if is_magic(to) or "email" in simulated_channels(visit.setup.carriers):
        told += " A simulator takes it: read it in the test inbox."
    return Redirect(f"{visit.base}/messages/{sent.id}", told)


def _in_words(refusal: Refusal) -> str:
    return refusal.message if refusal.fix in refusal.message else f"{refusal.message}. {refusal.fix}"


def _sender(team: Team) -> str | None:
    """Return a sender address at the first approved domain; None without one, or in the sandbox (platform sender)."""
    domains = [] if team.sandbox else team.approved_domains
    return f"hello@{domains[0].name}" if domains else None


async def show(visit: Visit, to: str = MAGIC, wrong: str = "") -> Page:
    team, store = visit.team, visit.context.store
    now = visit.context.clock.of(team.record.ref)
    span, channel = visit.query.get("span", ""), visit.query.get("channel", "")
    span = span if span in SPANS else "day"
    channel = channel if channel in CHANNELS else ""
    times = charts.buckets(span, now, visit.zone)
    width = DAY_MS if span == "year" else HOUR_MS
    hooks = [hook.id for hook in team.webhooks if hook.enabled]
    stream = await live.team_stream_address(visit, "overview")
    seen = await store.figures.overview(team.record.ref, _earlier(times), width, hooks)
    account = await store.ledger.account(team.record.ref)
    role = visit.instance_role
    channels = [channel] if channel else list(CHANNELS)
    series = _fold(seen.figures, times, width, channels)
    before = [counts for (start, of), counts in seen.figures.items() if of in channels and start < times[0].start]
    old_email = [counts for (start, of), counts in seen.figures.items() if of == "email" and start < times[0].start]
    total = _sum(chain(*series.values()))
    email = _sum(series.get("email", ()))
    link = partial(_messages, visit.base, times[0].start, times[-1].finish)
    values = {
        "live": stream,
        "span": span,
        "spans": SPANS,
        "channel": channel,
        "channels": CHANNELS,
        "total": total,
        "tiles": _tiles(total, _sum(before), email, _sum(old_email), channel, span, link),
        "by_channel": [(one, CHANNELS[one], _sum(counts)) for one, counts in series.items()],
        "link": link,
        "states": STATES,
        "sends": _sends(visit.base, series, times, channel),
        "rates": _rates(visit.base, series, times, channel),
        "rate": rate,
        "percent": charts.percent,
        "few": FEW,
        "account": account,
        "used": alerts.used_this_month(account, now),
        "waiting": seen.waiting,
        "many": QUEUE_MOST,
        "age_s": (now - seen.oldest_due) // 1000 if seen.oldest_due is not None else 0,
        "concerns": [
            *alerts.of_instance(visit.setup, visit.store.circuits.current.values(), role),
            *alerts.of_channels(visit.setup, role),
            *alerts.of_team(team, visit.store.reputation.current.get(team.record.id), account, seen.failing, now, role),
        ],
        "magic": MAGIC,
        "to": to,
        "wrong": wrong,
    }
    return Page("overview.html", values, 400 if wrong else 200)


def _earlier(times: Sequence[Bucket]) -> int:
    """Return the start of the preceding period of equal length; `start` for a year: older statistics are not kept."""
    start, finish = times[0].start, times[-1].finish
    return start if finish - start > 60 * DAY_MS else start - (finish - start)


def _messages(base: str, start: int, finish: int, **wanted: str) -> str:
    """Return the URL of the message list filtered by time range and `wanted`, such as state and channel."""
    given = {"from": _minute(start), "until": _minute(finish)} | {name: one for name, one in wanted.items() if one}
    return f"{base}/messages?{urlencode(given, safe=':')}"


def _minute(ms: int) -> str:
    return f"{timestamp(ms)[:16]}Z"


class Tile(msgspec.Struct, frozen=True, kw_only=True):
    """A figure with its rating by the product's thresholds and its change from the preceding period."""

    name: str
    figure: str
    page: str
    change: str = ""  # change from the preceding period
    better: bool | None = None  # whether the change is an improvement; None if it is neutral
    state: str = ""  # state of the badge
    judged: str = ""


def _tiles(
    total: Reached,
    before: Reached,
    email: Reached,
    old_email: Reached,
    channel: str,
    span: str,
    link: Callable[..., str],
) -> list[Tile]:
    name = SPANS[span]
    tiles = [
        Tile(
            name="Sent",
            figure=short(total.sent),
            page=link(channel=channel),
            change=_change(number(before.sent), total.sent - before.sent, name) if before.sent else "",
        ),
        _share_tile("Delivered", "delivered", total, before, link(channel=channel, status="delivered"), name, up=True),
    ]
    if channel in ("", "email"):
        for title, state, of in BY_EMAIL:
            page = link(channel="email", status=state)
            tiles.append(_judged(_share_tile(title, state, email, old_email, page, name, up=False), state, of, email))
    failed = Tile(name="Failed", figure=short(total.failed), page=link(channel=channel, status="failed"))
    return [*tiles, failed]


def _share_tile(title: str, state: str, now: Reached, before: Reached, page: str, span: str, *, up: bool) -> Tile:
    share, old = (rate(getattr(one, state), one.sent) for one in (now, before))
    change, better = "", None
    if share is not None and old is not None:
        points = share - old
        change = _change(charts.percent(old), 0 if abs(points) < 0.05 else points, span)
        better = (points > 0) == up if abs(points) >= 0.05 else None
    figure = "–" if share is None else charts.percent(share)
    return Tile(name=title, figure=figure, page=page, change=change, better=better)


def _judged(tile: Tile, state: str, of: Literal["bounces", "complaints"], email: Reached) -> Tile:
    if not email.sent:
        return tile
    verdict = judge_share(of, getattr(email, state), email.sent)
    if verdict is None:
        return replace(tile, change="", better=None, judged=f"Too few to judge ({email.sent} of {MIN_SENDS}).")
    limit = charts.percent(warned_from(of))
    state = {"ok": "good", "warn": "warn", "paused": "error"}[verdict]
    return replace(
        tile, state=state, judged=f"Below {limit} is good." if verdict == "ok" else f"Keep it below {limit}."
    )


def _change(before: str, more: float, span: str) -> str:
    return f"{'▲' if more > 0 else '▼'} was {before} in the previous {span}" if more else f"as in the previous {span}"


def rate(part: int, whole: int) -> float | None:
    """Return `part` of `whole` in percent; None if `whole` is 0.

    At most 100: outcomes may belong to sends of an earlier hour.
    """
    return min(100.0, 100 * part / whole) if whole else None


def _sum(counts: Iterable[Reached]) -> Reached:
    return reduce(Reached.plus, counts, Reached())


def _fold(
    found: dict[tuple[int, str], Reached], times: Sequence[Bucket], width: int, channels: Iterable[str]
) -> ByChannel:
    """Sum counts per channel and bucket. A count belongs to the bucket that contains the middle of its interval:
    daylight saving time may shift the start by an hour.
    """
    starts = [time.start for time in times]
    folded = {channel: [Reached()] * len(times) for channel in channels}
    for (start, channel), counts in found.items():
        index = bisect_right(starts, start + width // 2) - 1
        if channel in folded and index >= 0:
            folded[channel][index] = folded[channel][index].plus(counts)
    return folded


def _sends(base: str, series: ByChannel, times: Sequence[Bucket], channel: str) -> Chart:
    sent = [Series(CHANNELS[of], of, [one.sent for one in counts]) for of, counts in series.items()]

    def page_of(bucket: Bucket) -> str:
        return _messages(base, bucket.start, bucket.finish, channel=channel)

    return charts.bars("Sent", times, sent, text=charts.count, least=2, page_of=page_of)


def _rates(base: str, series: ByChannel, times: Sequence[Bucket], channel: str) -> list[Chart]:
    """Return the charts of rates; bounce and complaint rates only if emails are shown."""
    wanted: list[tuple[str, str, list[str], float, float | None]] = [
        ("Delivery rate", "delivered", list(series), 100.0, None)
    ]
    if "email" in series:
        for title, state, of in BY_EMAIL:
            wanted.append((title, state, ["email"], 2 * warned_from(of), warned_from(of)))
    made = []
    for title, state, channels, least, limit in wanted:
        each = [_sum(column) for column in zip(*(series[of] for of in channels), strict=True)]
        rates = [rate(getattr(one, state), one.sent) for one in each]
        page_of = partial(_page_of, base, state, channel if state == "delivered" else "email")
        few = {index for index, one in enumerate(each) if one.sent < FEW}
        shape: Shape = "steps" if limit else "line"
        one = [Series(title, state, rates)]
        made.append(
            charts.bars(
                *(title, times, one),
                text=charts.percent,
                least=least,
                limit=limit,
                page_of=page_of,
                shape=shape,
                few=few,
            )
        )
    return made


def _page_of(base: str, state: str, channel: str, bucket: Bucket) -> str:
    return _messages(base, bucket.start, bucket.finish, channel=channel, status=state)
