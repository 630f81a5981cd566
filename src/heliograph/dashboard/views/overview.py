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
from heliograph.dashboard.charts import Bucket, Chart, ChartShape, Series
from heliograph.dashboard.page_request import Page, PageRequest, PageResponse, Redirect
from heliograph.dashboard.render import CHANNEL_NAMES, format_number, format_short_number
from heliograph.dashboard.views import live
from heliograph.domain.delivery.magic_recipients import is_magic
from heliograph.domain.delivery.routing import blocked_channels, simulated_channels
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import DAY_MS, HOUR_MS
from heliograph.domain.mail.reputation import MIN_SENDS, judge_rate, warning_threshold
from heliograph.domain.refusals import Refusal
from heliograph.domain.setup.records import Team
from heliograph.manage.keys import keys_of
from heliograph.storage.stats import QUEUE_COUNT_MAX, StateCounts

SPAN_LABELS = {"day": "24 hours", "month": "30 days", "year": "12 months"}
RATE_MIN_MESSAGES = 20  # minimum messages per bar for a meaningful rate
MAGIC_RECIPIENT = "delivered@simulator.test"
TABLE_STATES = ("delivered", "read", "bounced", "complained", "failed")  # columns of the table, after `sent`
# (title, state, name of the rate in the reputation check), for emails only
EMAIL_RATES: tuple[tuple[str, str, Literal["bounces", "complaints"]], ...] = (
    ("Bounce rate", "bounced", "bounces"),
    ("Complaint rate", "complained", "complaints"),
)

CountsByChannel = dict[str, list[StateCounts]]  # channel → counts per bucket


async def send_test(request: PageRequest) -> PageResponse:
    """Send a test email from the team, through the same code as the API."""
    to = request.form.get("to", "").strip() or MAGIC_RECIPIENT
    email = EmailRequest(
        to=to,
        from_=_sender_address(request.team),
        subject=f"Test message from {request.team.record.name}"[:200],
        text="It works! This message was sent from the dashboard.",
    )
    caller = replace(request.caller, entry=lambda id_: request.audit_entry("message.test", id_))
    try:
        message = await send_email(request.context, caller, email, None)
    except Refusal as refusal:
        return await show(request, to, _refusal_text(refusal))
    notice = "Test message sent."
    if is_magic(to) or "email" in simulated_channels(request.setup.carriers):
        notice += " It is simulated: read it in the test inbox."
    return Redirect(f"{request.team_path}/messages/{message.id}", notice)


def _refusal_text(refusal: Refusal) -> str:
    return refusal.message if refusal.fix in refusal.message else f"{refusal.message}. {refusal.fix}"


def _sender_address(team: Team) -> str | None:
    """Return an address at the team's first approved domain; None for the platform's sender."""
    domains = [] if team.sandbox else team.approved_domains
    return f"hello@{domains[0].name}" if domains else None


async def show(request: PageRequest, to: str = MAGIC_RECIPIENT, error: str = "") -> Page:
    team, store = request.team, request.context.store
    now = request.context.clock.team_now(team.record.ref)
    span, channel = request.query.get("span", ""), request.query.get("channel", "")
    span = span if span in SPAN_LABELS else "day"
    channel = channel if channel in CHANNEL_NAMES else ""
    time_buckets = charts.buckets(span, now, request.time_zone)
    interval_ms = DAY_MS if span == "year" else HOUR_MS
    webhook_ids = [hook.id for hook in team.webhooks if hook.enabled]
    live_url = await live.team_stream_url(request, "overview")
    overview = await store.stats.overview(team.record.ref, _period_start(time_buckets), interval_ms, webhook_ids)
    account = await store.ledger.get_account(team.record.ref)
    role = request.instance_role
    channels = [channel] if channel else list(CHANNEL_NAMES)
    counts_by_channel = _fold_into_buckets(overview.counts, time_buckets, interval_ms, channels)
    earlier = [(key[1], counts) for key, counts in overview.counts.items() if key[0] < time_buckets[0].start]
    previous = _sum_counts(counts for count_channel, counts in earlier if count_channel in channels)
    previous_email = _sum_counts(counts for count_channel, counts in earlier if count_channel == "email")
    total = _sum_counts(chain(*counts_by_channel.values()))
    email = _sum_counts(counts_by_channel.get("email", ()))
    messages_link = partial(_messages_url, request.team_path, time_buckets[0].start, time_buckets[-1].end)
    used_emails = alerts.emails_used_this_month(account, now)
    has_sent = bool(total.sent or used_emails or previous.sent)
    values = {
        "steps": [] if has_sent or not request.has_role("developer") else _first_steps(request),
        "live": live_url,
        "span": span,
        "spans": SPAN_LABELS,
        "channel": channel,
        "channels": CHANNEL_NAMES,
        "total": total,
        "tiles": _tiles(total, previous, email, previous_email, channel, span, messages_link),
        "by_channel": [
            (series_channel, CHANNEL_NAMES[series_channel], _sum_counts(counts))
            for series_channel, counts in counts_by_channel.items()
        ],
        "link": messages_link,
        "states": TABLE_STATES,
        "sends": _sent_chart(request.team_path, counts_by_channel, time_buckets, channel),
        "rates": _rate_charts(request.team_path, counts_by_channel, time_buckets, channel),
        "rate": percent_of,
        "percent": charts.format_percent,
        "rate_min_messages": RATE_MIN_MESSAGES,
        "bucket_unit": charts.BUCKETS_BY_SPAN[span][0],
        "account": account,
        "used": used_emails,
        "waiting": overview.waiting,
        "count_max": QUEUE_COUNT_MAX,
        "blocked": [CHANNEL_NAMES[item] for item in blocked_channels(request.setup.carriers, store.circuits.current)],
        "age_s": (now - overview.oldest_due) // 1000 if overview.oldest_due is not None else 0,
        "alerts": [
            *alerts.instance_alerts(request.setup, request.store.circuits.current.values(), role),
            *alerts.channel_alerts(request.setup, role),
            *alerts.team_alerts(
                team, request.store.reputations.current.get(team.record.id), account, overview.failing, now, role
            ),
        ],
        "magic": MAGIC_RECIPIENT,
        "to": request.query.get("to", to),
        "wrong": error,
    }
    return Page("overview.html", values, 400 if error else 200)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """An item of the checklist for new teams."""

    title: str
    text: str
    link: str  # relative to the team's pages
    link_text: str
    is_done: bool = False


def _first_steps(request: PageRequest) -> list[Step]:
    """Return the setup steps shown to a team that has sent nothing; empty if only the first send is missing."""
    team = request.team
    steps = [
        Step(
            title="Create an API key",
            text="Your program uses a key to call the API.",
            link="/keys/new",
            link_text="New key",
            is_done=any(not key.revoked for key in keys_of(request.setup, team.record.id)),
        ),
        Step(
            title="Send the first message",
            text="Copy a request for curl, Python or Node.js, or send a test below.",
            link="/start",
            link_text="Quick start",
        ),
        Step(
            title="Verify your domain",
            text="Add DNS records, so that emails come from your own address.",
            link="/senders/domains/new" if not team.domains else "/senders",
            link_text="View domains" if team.domains else "New domain",
            is_done=any(domain.verified for domain in team.domains.values()),
        ),
        Step(
            title="Add a webhook",
            text="Learn about deliveries, bounces and complaints as they happen.",
            link="/webhooks/new",
            link_text="New webhook",
            is_done=bool(team.webhooks),
        ),
    ]
    if sum(not step.is_done for step in steps) < 2:
        return []
    return [step for step in steps if request.can_open(f"/{step.link.split('/')[1]}")]


def _period_start(time_buckets: Sequence[Bucket]) -> int:
    """Return the start of the preceding period of equal length.

    For a year, return the start of that year itself, because older counts are deleted.
    """
    start, end = time_buckets[0].start, time_buckets[-1].end
    return start if end - start > 60 * DAY_MS else start - (end - start)


def _messages_url(base: str, start: int, end: int, **filters: str) -> str:
    """Return the URL of the messages in a time range; `filters` may contain state and channel."""
    params = {"from": _minute_timestamp(start), "until": _minute_timestamp(end)} | {
        name: value for name, value in filters.items() if value
    }
    return f"{base}/messages?{urlencode(params, safe=':')}"


def _minute_timestamp(ms: int) -> str:
    return f"{timestamp(ms)[:16]}Z"


class Tile(msgspec.Struct, frozen=True, kw_only=True):
    """A figure with a rating and its change from the preceding period."""

    name: str
    value: str
    link: str
    change: str = ""  # compared with the preceding period
    is_better: bool | None = None  # whether the change is good; None if it is neither good nor bad
    state: str = ""  # state of the badge
    rating_text: str = ""


def _tiles(
    total: StateCounts,
    previous: StateCounts,
    email: StateCounts,
    previous_email: StateCounts,
    channel: str,
    span: str,
    messages_link: Callable[..., str],
) -> list[Tile]:
    period = SPAN_LABELS[span]
    tiles = [
        Tile(
            name="Sent",
            value=format_short_number(total.sent),
            link=messages_link(channel=channel),
            change=_change_text(format_number(previous.sent), total.sent - previous.sent, period)
            if previous.sent
            else "",
        ),
        _share_tile(
            "Delivered",
            "delivered",
            total,
            previous,
            messages_link(channel=channel, status="delivered"),
            period,
            higher_is_better=True,
        ),
    ]
    if channel in ("", "email"):
        for title, status, rate_kind in EMAIL_RATES:
            url = messages_link(channel="email", status=status)
            tiles.append(
                _rate_tile(
                    _share_tile(title, status, email, previous_email, url, period, higher_is_better=False),
                    status,
                    rate_kind,
                    email,
                )
            )
    failed_tile = Tile(
        name="Failed", value=format_short_number(total.failed), link=messages_link(channel=channel, status="failed")
    )
    return [*tiles, failed_tile]


def _share_tile(
    title: str, state: str, current: StateCounts, previous: StateCounts, link: str, span: str, *, higher_is_better: bool
) -> Tile:
    current_rate, previous_rate = (percent_of(getattr(counts, state), counts.sent) for counts in (current, previous))
    change, is_better = "", None
    if current_rate is not None and previous_rate is not None:
        points = current_rate - previous_rate
        change = _change_text(charts.format_percent(previous_rate), 0 if abs(points) < 0.05 else points, span)
        is_significant = abs(points) >= 0.05 and min(current.sent, previous.sent) >= MIN_SENDS
        is_better = (points > 0) == higher_is_better if is_significant else None
    value = "–" if current_rate is None else charts.format_percent(current_rate)
    return Tile(name=title, value=value, link=link, change=change, is_better=is_better)


def _rate_tile(tile: Tile, state: str, rate_kind: Literal["bounces", "complaints"], email: StateCounts) -> Tile:
    if not email.sent:
        return tile
    verdict = judge_rate(rate_kind, getattr(email, state), email.sent)
    if verdict is None:
        return replace(tile, change="", is_better=None, rating_text=f"Not judged below {MIN_SENDS} emails")
    limit = charts.format_percent(warning_threshold(rate_kind))
    state = {"ok": "good", "warn": "warn", "paused": "error"}[verdict]
    return replace(
        tile, state=state, rating_text=f"Below {limit} is good." if verdict == "ok" else f"Keep it below {limit}."
    )


def _change_text(previous: str, difference: float, span: str) -> str:
    return f"{'▲' if difference > 0 else '▼'} from {previous}" if difference else f"same as previous {span}"


def percent_of(count: int, total: int) -> float | None:
    """Return `count` of `total` in percent, at most 100; None if `total` is 0.

    The count can be higher, because an outcome may belong to a message sent in an earlier hour.
    """
    return min(100.0, 100 * count / total) if total else None


def _sum_counts(counts: Iterable[StateCounts]) -> StateCounts:
    return reduce(StateCounts.plus, counts, StateCounts())


def _fold_into_buckets(
    counts_by_interval: dict[tuple[int, str], StateCounts],
    time_buckets: Sequence[Bucket],
    interval_ms: int,
    channels: Iterable[str],
) -> CountsByChannel:
    """Sum counts per channel and bucket.

    A count belongs to the bucket with the middle of its interval, because daylight saving time may shift the start by
    an hour.
    """
    starts = [bucket.start for bucket in time_buckets]
    result = {channel: [StateCounts()] * len(time_buckets) for channel in channels}
    for (start, channel), counts in counts_by_interval.items():
        index = bisect_right(starts, start + interval_ms // 2) - 1
        if channel in result and index >= 0:
            result[channel][index] = result[channel][index].plus(counts)
    return result


def _sent_chart(base: str, counts_by_channel: CountsByChannel, time_buckets: Sequence[Bucket], channel: str) -> Chart:
    sent_series = [
        Series(CHANNEL_NAMES[series_channel], series_channel, [bucket_counts.sent for bucket_counts in counts])
        for series_channel, counts in counts_by_channel.items()
    ]
    bucket_url = partial(_bucket_url, base, "", channel)
    return charts.draw_chart(
        "Sent", time_buckets, sent_series, format_value=charts.format_count, top_min=2, bucket_url=bucket_url
    )


def _rate_charts(
    base: str, counts_by_channel: CountsByChannel, time_buckets: Sequence[Bucket], channel: str
) -> list[Chart]:
    """Return the charts of rates, with bounces and complaints only if emails are shown."""
    rate_specs: list[tuple[str, str, list[str], float, float | None]] = [
        ("Delivery rate", "delivered", list(counts_by_channel), 100.0, None)
    ]
    if "email" in counts_by_channel:
        for rate_title, state, rate_kind in EMAIL_RATES:
            threshold = warning_threshold(rate_kind)
            rate_specs.append((rate_title, state, ["email"], 2 * threshold, threshold))
    result = []
    for rate_title, state, channels, top_min, limit in rate_specs:
        totals = [
            _sum_counts(column)
            for column in zip(*(counts_by_channel[series_channel] for series_channel in channels), strict=True)
        ]
        rates = [percent_of(getattr(bucket_counts, state), bucket_counts.sent) for bucket_counts in totals]
        bucket_url = partial(_bucket_url, base, state, channel if state == "delivered" else "email")
        sparse = {index for index, bucket_counts in enumerate(totals) if bucket_counts.sent < RATE_MIN_MESSAGES}
        shape: ChartShape = "steps" if limit else "line"
        result.append(
            charts.draw_chart(
                *(rate_title, time_buckets, [Series(rate_title, state, rates)]),
                format_value=charts.format_percent,
                top_min=top_min,
                limit=limit,
                bucket_url=bucket_url,
                shape=shape,
                sparse=sparse,
            )
        )
    return result


def _bucket_url(base: str, state: str, channel: str, bucket: Bucket) -> str:
    """Return the URL of a bar's messages. `state`, `channel`: empty for all."""
    return _messages_url(base, bucket.start, bucket.end, channel=channel, status=state)
