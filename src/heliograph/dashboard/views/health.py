"""Operators' start page: delivery health, pending work, and the teams, those with problems first."""

from collections.abc import Mapping
from math import inf

import msgspec

from heliograph.dashboard import charts
from heliograph.dashboard.page_request import Page, PageRequest
from heliograph.dashboard.render import CHANNEL_NAMES, format_duration, format_number, names_with_verb
from heliograph.dashboard.views import live, queues
from heliograph.dashboard.views.approvals import requested_at
from heliograph.domain.delivery.lanes import PRIORITIES
from heliograph.domain.delivery.routing import blocked_channels, disabled_channels
from heliograph.domain.limits import HOUR_MS, MINUTE_MS
from heliograph.domain.mail.reputation import Reputation, judge_rate
from heliograph.domain.sending.pricing import Account
from heliograph.domain.setup.records import Priority, Team
from heliograph.domain.setup.sender_approvals import pending_senders
from heliograph.domain.setup.snapshot import Setup
from heliograph.domain.text import parse_int
from heliograph.storage.dead_letters import COUNT_MAX
from heliograph.storage.stats import TeamTotals
from heliograph.templates.policy import layout_drafts
from heliograph.templates.policy.template_approvals import list_pending

OPERATOR_PATH = "/dashboard/operator"
PAGE_SIZE = 50
LONG_WAIT_MS = 5 * MINUTE_MS  # a longer wait is a problem
HOURS_SHOWN = 24
TEAM_PROBLEMS = (  # (state of the badge, text) of a team's problems, most severe first
    ("paused", "Direct emails paused"),
    ("low", "No credit"),
    ("warn", "Many complaints"),
    ("warn", "Many bounces"),
    ("failing", "Webhook disabled"),
    ("low", "Credit low"),
    ("suspended", "Suspended"),
)


class HealthTile(msgspec.Struct, frozen=True, kw_only=True):
    """A figure about the status, at the top of the page."""

    name: str
    value: str
    link: str
    detail: str = ""
    since: int | None = None  # time in ms, shown after `detail`
    kind: str = ""  # wait or bad; empty if healthy


class TeamHealth(msgspec.Struct, frozen=True, kw_only=True):
    team: Team
    account: Account | None
    stats: TeamTotals
    problems: list[tuple[str, str]]  # those of TEAM_PROBLEMS that apply, in the same order


async def show(request: PageRequest) -> Page:
    store, now = request.store, request.context.clock.now()
    search_text = request.query.get("q", "").strip()
    pages_before = max(0, (parse_int(request.query.get("page", ""), 6) or 1) - 1)
    live_url = await live.stream_url(request, f"{queues.QUEUES_PATH}/live", queues.queues_subscription(request))
    since = now - now % HOUR_MS - (HOURS_SHOWN - 1) * HOUR_MS
    stats = await store.stats.instance_totals(since)
    matching_teams = [team for team in request.setup.teams.values() if _matches(team, search_text.lower())]
    accounts = await store.ledger.find_accounts([team.record.ref for team in matching_teams])
    rows = sorted(
        (_team_health(team, stats, accounts, store.reputations.current.get(team.record.id)) for team in matching_teams),
        key=_sort_key,
    )
    page_rows = rows[pages_before * PAGE_SIZE : (pages_before + 1) * PAGE_SIZE]
    sent_by_team = await store.stats.sent_by_hour([row.team.record.ref for row in page_rows], since)
    values = {
        "live": live_url,
        "tiles": [
            _delivery_tile(request, sum(team_stats.sent for team_stats in stats.values())),
            _waiting_tile(await store.dead_letters.oldest_by_priority(now), now),
            _carriers_tile(request),
            _dead_letters_tile(await store.dead_letters.count()),
            _approvals_tile(request.setup, request.pending_approvals),
        ],
        "lines": [
            (row, charts.draw_sparkline(_sent_by_hour(sent_by_team.get(row.team.record.ref, {}), since)))
            for row in page_rows
        ],
        "rate": format_rate,
        "newer": pages_before,
        "older": pages_before + 2 if len(rows) > (pages_before + 1) * PAGE_SIZE else 0,
        "count": len(request.setup.teams),
        "q": search_text,
    }
    return Page("health.html", values)


# -- tiles -----------------------------------------------------------------------------------------------------------


def _delivery_tile(request: PageRequest, sent: int) -> HealthTile:
    setup, link = request.setup, f"{OPERATOR_PATH}/queues"
    if setup.platform.paused:
        reason = setup.platform.paused_reason or "Messages are accepted and queued."
        return HealthTile(name="Delivery", value="Paused", link=link, detail=reason, kind="bad")
    detail = f"{format_number(sent)} sent in 24 hours"
    if len(request.simulated_channel_names) == len(CHANNEL_NAMES):
        detail = f"No real messages are sent: {detail}, all simulated."
        return HealthTile(
            name="Delivery", value="Simulated", link=f"{OPERATOR_PATH}/carriers", detail=detail, kind="wait"
        )
    blocked = [CHANNEL_NAMES[item] for item in blocked_channels(setup.carriers, request.store.circuits.current)]
    if blocked:
        is_all = {*blocked} | {*request.simulated_channel_names} == {*CHANNEL_NAMES.values()}
        return HealthTile(
            name="Delivery",
            value="Blocked" if is_all else "Partly blocked",
            link=f"{OPERATOR_PATH}/carriers",
            detail=f"{', '.join(blocked)}: no carrier can take messages. {detail}",
            kind="bad",
        )
    return HealthTile(name="Delivery", value="On", link=link, detail=detail)


def _waiting_tile(oldest_due: Mapping[Priority, int], now: int) -> HealthTile:
    ages = [(priority, now - oldest_due[priority]) for priority in PRIORITIES if priority in oldest_due]
    highest_age = max((age for _, age in ages), default=0)
    return HealthTile(
        name="Oldest in queue",
        value=format_duration(highest_age) if ages else "None",
        link=f"{OPERATOR_PATH}/queues#waiting",
        detail=", ".join(f"{format_duration(age)} at {priority} priority" for priority, age in ages)
        or "Queue is empty.",
        kind="wait" if highest_age > LONG_WAIT_MS else "",
    )


def _carriers_tile(request: PageRequest) -> HealthTile:
    real_carriers = [carrier for carrier in request.setup.carriers if carrier.kind != "simulator"]
    enabled = [carrier for carrier in real_carriers if carrier.enabled]
    open_circuits = [
        request.store.circuits.current[item.id] for item in enabled if item.id in request.store.circuits.current
    ]
    link = f"{OPERATOR_PATH}/carriers/{open_circuits[0].id}" if len(open_circuits) == 1 else f"{OPERATOR_PATH}/carriers"
    if not enabled:
        value, detail = (
            ("None enabled", _closed_channels_text(request.setup))
            if real_carriers
            else ("None set up", "All messages are simulated.")
        )
        return HealthTile(name="Carriers reachable", value=value, link=link, detail=detail, kind="wait")
    return HealthTile(
        name="Carriers reachable",
        value=f"{len(enabled) - len(open_circuits)} of {len(enabled)}",
        link=link,
        detail=f"{', '.join(item.id for item in open_circuits)} became unreachable"
        if open_circuits
        else "All carriers are reachable.",
        since=min((item.since for item in open_circuits), default=None),
        kind="bad" if open_circuits else "",
    )


def _closed_channels_text(setup: Setup) -> str:
    """Return what happens to messages of channels without an enabled carrier."""
    closed_channels = disabled_channels(setup.carriers)
    refused_names = [CHANNEL_NAMES[channel] for channel in closed_channels if channel != "email"]
    sentences = ["Emails are queued."] if "email" in closed_channels else []
    sentences += [f"{names_with_verb(refused_names)} refused."] if refused_names else []
    return " ".join(sentences) or "All messages are simulated."


def _dead_letters_tile(count: int) -> HealthTile:
    return HealthTile(
        name="Dead letters",
        value=format_number(count) + ("+" if count == COUNT_MAX else ""),
        link=f"{OPERATOR_PATH}/queues#dead",
        detail="Held after repeated failures." if count else "No dead letters.",
        kind="bad" if count else "",
    )


def _approvals_tile(setup: Setup, count: int) -> HealthTile:
    request_times = [draft.saved_at for draft in list_pending(setup) if draft.saved_at]
    request_times += [requested for item in pending_senders(setup) if (requested := requested_at(item))]
    request_times += [layout.submitted_at for layout in layout_drafts.list_pending(setup) if layout.submitted_at]
    return HealthTile(
        name="Approvals",
        value=format_number(count),
        link=f"{OPERATOR_PATH}/approvals",
        detail="Oldest requested" if request_times else "Waiting for a decision." if count else "No pending requests.",
        since=min(request_times, default=None),
        kind="wait" if count else "",
    )


# -- teams -----------------------------------------------------------------------------------------------------------


def _team_health(
    team: Team, totals_by_ref: dict[int, TeamTotals], accounts: dict[int, Account], reputation: Reputation | None
) -> TeamHealth:
    team_stats, account = totals_by_ref.get(team.record.ref, TeamTotals()), accounts.get(team.record.ref)
    return TeamHealth(
        team=team, account=account, stats=team_stats, problems=find_problems(team, team_stats, account, reputation)
    )


def find_problems(
    team: Team, team_stats: TeamTotals, account: Account | None, reputation: Reputation | None
) -> list[tuple[str, str]]:
    """Return the problems of a team, most severe first."""
    credit = account.available if account and not team.sandbox else inf
    is_low = credit < team.record.credit_low
    conditions = (
        reputation is not None and reputation.state == "paused",
        is_low and credit <= 0,
        judge_rate("complaints", team_stats.complained, team_stats.emails) in ("warn", "paused"),
        judge_rate("bounces", team_stats.bounced, team_stats.emails) in ("warn", "paused"),
        any(not hook.enabled and hook.disabled_reason for hook in team.webhooks),
        is_low and credit > 0,
        team.record.suspended,
    )
    return [problem for problem, is_present in zip(TEAM_PROBLEMS, conditions, strict=True) if is_present]


def _sort_key(row: TeamHealth) -> tuple[int, int, str, str]:
    severity_rank = TEAM_PROBLEMS.index(row.problems[0]) if row.problems else len(TEAM_PROBLEMS)
    return severity_rank, -row.stats.sent, row.team.record.name.casefold(), row.team.record.id


def _sent_by_hour(sent: Mapping[int, int], since: int) -> list[int]:
    return [sent.get(since + hour * HOUR_MS, 0) for hour in range(HOURS_SHOWN)]


def format_rate(count: int, total: int) -> str:
    return charts.format_percent(min(100.0, 100 * count / total)) if total else "–"


def _matches(team: Team, text: str) -> bool:
    return any(text in name.lower() for name in (team.record.id, team.record.name, *team.domains))
