"""Start page of operators: delivery health, pending work, and the teams, those with problems first."""

from collections.abc import Mapping

import msgspec

from heliograph.dashboard import charts
from heliograph.dashboard.page_request import Page, Visit
from heliograph.dashboard.render import CHANNEL_NAMES, are, lasted, number
from heliograph.dashboard.views import live, queues
from heliograph.dashboard.views.approvals import asked_at
from heliograph.domain.delivery.lanes import PRIORITIES
from heliograph.domain.delivery.routing import closed_channels
from heliograph.domain.limits import HOUR_MS, MINUTE_MS
from heliograph.domain.mail.reputation import Reputation, judge_share
from heliograph.domain.sending.pricing import Account
from heliograph.domain.setup.records import Priority, Team
from heliograph.domain.setup.sender_approvals import pending
from heliograph.domain.setup.snapshot import Setup
from heliograph.domain.text import whole_number
from heliograph.storage.dead_letters import COUNT_MOST
from heliograph.storage.stats import TeamFigures
from heliograph.templates.policy import layout_drafts
from heliograph.templates.policy.template_approvals import list_pending

HERE = "/dashboard/operator"
PAGE = 50
LATE_MS = 5 * MINUTE_MS  # a longer wait counts as a problem
HOURS = 24
TROUBLES = (  # problems of a team, most severe first: (state of the badge, text)
    ("paused", "Direct emails paused"),
    ("low", "No credit"),
    ("warn", "Many complaints"),
    ("warn", "Many bounces"),
    ("failing", "Webhook disabled"),
    ("low", "Credit low"),
    ("suspended", "Suspended"),
)


class HealthTile(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    figure: str
    page: str
    about: str = ""
    since: int | None = None  # time shown after `about`
    kind: str = ""  # wait, bad; empty if healthy


class TeamHealth(msgspec.Struct, frozen=True, kw_only=True):
    team: Team
    account: Account | None
    figures: TeamFigures
    troubles: list[tuple[str, str]]  # subset of TROUBLES, in the same order


async def show(visit: Visit) -> Page:
    store, now = visit.store, visit.context.clock.now()
    wanted = visit.query.get("q", "").strip()
    before = max(0, (whole_number(visit.query.get("page", ""), 6) or 1) - 1)  # number of pages to skip
    followed = await live.stream_address(visit, f"{queues.HERE}/live", queues.watch(visit))
    since = now - now % HOUR_MS - (HOURS - 1) * HOUR_MS
    figures = await store.figures.of_instance(since)
    fitting = [team for team in visit.setup.teams.values() if _fits(team, wanted.lower())]
    accounts = await store.ledger.accounts([team.record.ref for team in fitting])
    lines = sorted(
        (_line(team, figures, accounts, store.reputation.current.get(team.record.id)) for team in fitting), key=_order
    )
    shown = lines[before * PAGE : (before + 1) * PAGE]
    sent = await store.figures.sent_by_hour([line.team.record.ref for line in shown], since)
    values = {
        "live": followed,
        "tiles": [
            _delivery(visit, sum(one.sent for one in figures.values())),
            _waiting(await store.dead_letters.oldest(now), now),
            _carriers(visit),
            _dead(await store.dead_letters.count()),
            _approvals(visit.setup, visit.approvals),
        ],
        "lines": [(line, charts.spark(_hours(sent.get(line.team.record.ref, {}), since))) for line in shown],
        "rate": rate,
        "newer": before,
        "older": before + 2 if len(lines) > (before + 1) * PAGE else 0,
        "count": len(visit.setup.teams),
        "q": wanted,
    }
    return Page("health.html", values)


# -- tiles -----------------------------------------------------------------------------------------------------------


def _delivery(visit: Visit, sent: int) -> HealthTile:
    setup, page = visit.setup, f"{HERE}/queues"
    if setup.platform.paused:
        why = setup.platform.paused_reason or "Messages are accepted and wait."
        return HealthTile(name="Delivery", figure="Paused", page=page, about=why, kind="bad")
    about = f"{number(sent)} sent in 24 hours"
    if len(visit.simulated) == len(CHANNEL_NAMES):
        about = f"Nothing leaves this instance: {about}, to nobody."
        return HealthTile(name="Delivery", figure="Simulated", page=f"{HERE}/carriers", about=about, kind="wait")
    return HealthTile(name="Delivery", figure="On", page=page, about=about)


def _waiting(oldest: Mapping[Priority, int], now: int) -> HealthTile:
    ages = [(priority, now - oldest[priority]) for priority in PRIORITIES if priority in oldest]
    worst = max((age for _, age in ages), default=0)
    return HealthTile(
        name="Oldest waiting",
        figure=lasted(worst) if ages else "None",
        page=f"{HERE}/queues#waiting",
        about=", ".join(f"{priority} {lasted(age)}" for priority, age in ages) or "Nothing waits.",
        kind="wait" if worst > LATE_MS else "",
    )


def _carriers(visit: Visit) -> HealthTile:
    real = [carrier for carrier in visit.setup.carriers if carrier.kind != "simulator"]
    enabled = [carrier for carrier in real if carrier.enabled]
    dead = [visit.store.circuits.current[one.id] for one in enabled if one.id in visit.store.circuits.current]
    page = f"{HERE}/carriers/{dead[0].id}" if len(dead) == 1 else f"{HERE}/carriers"
    if not enabled:
        figure, about = (
            ("None enabled", _waits(visit.setup)) if real else ("None set up", "Simulators take all messages.")
        )
        return HealthTile(name="Carriers reachable", figure=figure, page=page, about=about, kind="wait")
    return HealthTile(
        name="Carriers reachable",
        figure=f"{len(enabled) - len(dead)} of {len(enabled)}",
        page=page,
        about=f"{', '.join(one.id for one in dead)} went out of reach" if dead else "None is out of reach.",
        since=min((one.since for one in dead), default=None),
        kind="bad" if dead else "",
    )


def _waits(setup: Setup) -> str:
    """Return what happens to messages of channels whose carriers are all disabled."""
    closed = closed_channels(setup.carriers)
    others = [CHANNEL_NAMES[channel] for channel in closed if channel != "email"]
    said = ["Emails wait."] if "email" in closed else []
    said += [f"{are(others)} refused."] if others else []
    return " ".join(said) or "Simulators take all messages."


def _dead(count: int) -> HealthTile:
    return HealthTile(
        name="Dead letters",
        figure=number(count) + ("+" if count == COUNT_MOST else ""),
        page=f"{HERE}/queues#dead",
        about="Parked after repeated crashes." if count else "Nothing is parked.",
        kind="bad" if count else "",
    )


def _approvals(setup: Setup, count: int) -> HealthTile:
    asked = [draft.at for draft in list_pending(setup) if draft.at]
    asked += [at for item in pending(setup) if (at := asked_at(item))]
    asked += [layout.submitted_at for layout in layout_drafts.list_pending(setup) if layout.submitted_at]
    return HealthTile(
        name="Approvals",
        figure=number(count),
        page=f"{HERE}/approvals",
        about="The oldest was asked for" if asked else "They wait for you." if count else "Nobody waits for you.",
        since=min(asked, default=None),
        kind="wait" if count else "",
    )


# -- teams -----------------------------------------------------------------------------------------------------------


def _line(
    team: Team, figures: dict[int, TeamFigures], accounts: dict[int, Account], reputation: Reputation | None
) -> TeamHealth:
    seen, account = figures.get(team.record.ref, TeamFigures()), accounts.get(team.record.ref)
    return TeamHealth(team=team, account=account, figures=seen, troubles=troubles(team, seen, account, reputation))


def troubles(
    team: Team, seen: TeamFigures, account: Account | None, reputation: Reputation | None
) -> list[tuple[str, str]]:
    """Return the problems of a team, most severe first."""
    credit = account.available if account and not team.sandbox else None
    is_low = credit is not None and credit < team.record.credit_low
    found = (
        reputation is not None and reputation.state == "paused",
        is_low and credit is not None and credit <= 0,
        judge_share("complaints", seen.complained, seen.emails) in ("warn", "paused"),
        judge_share("bounces", seen.bounced, seen.emails) in ("warn", "paused"),
        any(not hook.enabled and hook.disabled_reason for hook in team.webhooks),
        is_low and credit is not None and credit > 0,
        team.record.suspended,
    )
    return [trouble for trouble, is_there in zip(TROUBLES, found, strict=True) if is_there]


def _order(line: TeamHealth) -> tuple[int, int, str, str]:
    worst = TROUBLES.index(line.troubles[0]) if line.troubles else len(TROUBLES)
    return worst, -line.figures.sent, line.team.record.name.casefold(), line.team.record.id


def _hours(sent: Mapping[int, int], since: int) -> list[int]:
    return [sent.get(since + hour * HOUR_MS, 0) for hour in range(HOURS)]


def rate(part: int, whole: int) -> str:
    return charts.percent(min(100.0, 100 * part / whole)) if whole else "–"


def _fits(team: Team, wanted: str) -> bool:
    return any(wanted in name.lower() for name in (team.record.id, team.record.name, *team.domains))
