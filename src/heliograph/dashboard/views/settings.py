"""Settings of a team: name, threshold for low-credit notices, retention, sandbox and live mode."""

import re

from heliograph.dashboard.page_request import Answer, Page, Redirect, Visit, errors_of
from heliograph.dashboard.render import are
from heliograph.domain.limits import DAY_MS, SECOND_MS
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.sending.pricing import format_money
from heliograph.domain.setup.going_live import checklist, may_go_live
from heliograph.manage import team_clock, teams
from heliograph.storage.retention import DELIVERIES_KEPT_MS

DELIVERIES_DAYS = DELIVERIES_KEPT_MS // DAY_MS
HOUR_S = 3600
KEEP = ("keep_content_days", "keep_messages_days")


async def save(visit: Visit) -> Answer:
    given = {name: visit.form.get(name, "").strip() for name in ("name", "credit_low")}
    operator = visit.may("operator")
    try:
        team = await teams.save(visit.store, visit.actor, visit.team.record.id, given, by_operator=operator)
    except InvalidRequest as refusal:
        return await show(visit, given, errors_of(refusal))
    waits = f" The name {team.wanted} waits for the operator's approval." if team.wanted and not operator else ""
    return Redirect(f"{visit.base}/settings", f"The team is saved.{waits}")


async def keep(visit: Visit) -> Answer:
    given = {name: visit.form.get(name, "").strip() for name in KEEP}
    days = {name: int(text) if re.fullmatch("[0-9]{1,9}", text) else text for name, text in given.items()}
    try:
        await teams.set_retention(visit.store, visit.actor, visit.team.record.id, days)
    except InvalidRequest as refusal:
        return await show(visit, given, errors_of(refusal))
    return Redirect(f"{visit.base}/settings", "Retention is saved.")


async def set_test_clock(visit: Visit) -> Answer:
    on = visit.form.get("on") == "yes"
    try:
        await teams.set_test_clock(visit.store, visit.actor, visit.team.record.id, on)
    except InvalidRequest as refusal:
        return await show(visit, errors=errors_of(refusal))
    told = "The team has a test clock." if on else "The test clock is off. Messages, codes and events are deleted."
    return Redirect(f"{visit.base}/settings", told)


async def advance(visit: Visit) -> Answer:
    """Advance the team's test clock; work that becomes due is processed in the background."""
    hours = visit.form.get("hours", "").strip()
    try:
        seconds = int(hours) * HOUR_S if re.fullmatch("[0-9]{1,5}", hours) else 0
        await team_clock.advance(visit.store, visit.actor, visit.team, seconds)
    except InvalidRequest as refusal:
        return await show(visit, {"hours": hours}, {"hours": errors_of(refusal).get("advance_s", "")})
    return Redirect(f"{visit.base}/settings", "The test clock moves, and what becomes due on the way is done.")


async def go_live(visit: Visit) -> Answer:
    try:
        await teams.go_live(visit.store, visit.actor, visit.team.record.id)
    except InvalidRequest as refusal:
        return await show(visit, errors=errors_of(refusal))
    return Redirect(f"{visit.base}/settings", _told(visit.simulated))


def _told(simulated: list[str]) -> str:
    if not simulated:
        return "The team is live. What it sends now reaches people."
    return f"The team is live. {are(simulated)} still simulated: such messages reach nobody yet."


async def leave_live(visit: Visit) -> Answer:
    await teams.leave_live(visit.store, visit.actor, visit.team.record.id)
    return Redirect(
        f"{visit.base}/settings", "The team is in the sandbox. What it sends now reaches nobody unverified."
    )


async def show(visit: Visit, given: dict[str, str] | None = None, errors: dict[str, str] | None = None) -> Page:
    team = visit.team
    account = await visit.store.ledger.account(team.record.ref)
    checks = checklist(team, visit.setup.carriers, account.available)
    record = team.record
    name = record.wanted if record.wanted and not record.wanted_refused else record.name
    stored = {"name": name, "credit_low": format_money(team.record.credit_low).removesuffix("00")}
    stored |= {name: str(getattr(team.record, name)) for name in KEEP}
    given = stored | {"hours": "24"} | (given or {})
    ahead = visit.setup.moved.get(record.ref, 0)
    values = {
        "given": given,
        "errors": errors or {},
        "checks": checks,
        "ready": may_go_live(checks),
        "deliveries_days": DELIVERIES_DAYS,
        "team_now": visit.context.clock.of(record.ref),
        "ahead_hours": ahead // SECOND_MS // HOUR_S,
        "clock_moves": any(team.record.ref == record.ref for team in visit.setup.moving),
    }
    return Page("settings.html", values, 400 if errors else 200)
