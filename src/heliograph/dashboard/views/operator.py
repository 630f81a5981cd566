"""Teams of the instance, for operators: creation, suspension, credit, plan, and resuming paused email."""

from typing import Any

from heliograph.dashboard.page_request import Answer, Page, Redirect, Visit, errors_of
from heliograph.dashboard.render import money
from heliograph.dashboard.views.health import rate
from heliograph.domain.limits import DAY_MS
from heliograph.domain.mail.reputation import MIN_SENDS, WINDOW_SENDS, Counts, rates
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.sending.pricing import month_of
from heliograph.domain.text import whole_number
from heliograph.manage import credit, teams
from heliograph.manage.credit import Booking
from heliograph.storage.stats import TeamFigures
from heliograph.templates.policy.values import wrong_passthrough
from heliograph.texts.dashboard_links import OPERATOR as HERE
from heliograph.texts.dashboard_links import of_team

NEW = {"name": "", "id": "", "currency": "USD", "email_quota": "10000", "credit": "0"}
PLAN = ("email_quota", "rate_limit", "marketing_per_day", "octets_per_day", "domains_max", "segmenting", "passthrough")
TABS = ("credit", "plan")  # tabs besides the summary
RATES_MS = 30 * DAY_MS
NUMBERS = ("email_quota", "rate_limit", "marketing_per_day", "octets_per_day", "domains_max")


async def create(visit: Visit) -> Answer:
    given = {name: visit.form.get(name, usual).strip() for name, usual in NEW.items()}
    try:
        wanted = {name: value for name, value in _typed(given).items() if name != "id" or value}
        team = await teams.create(visit.store, visit.actor, wanted)
    except InvalidRequest as refusal:
        return await show_new(visit, given, errors_of(refusal))
    if len(visit.setup.teams) == 1:
        return Redirect(of_team(team.id), "The team is created. Send a test message to see it work.")
    return Redirect(
        f"{HERE}/teams/{team.id}", "The team is created. Invite its people, and it can begin in the sandbox."
    )


async def set_plan(visit: Visit) -> Answer:
    form = visit.form
    given = {name: form.get(name, "").strip() for name in PLAN}
    ticked = {
        "features": ["verify"] if form.get("verify") else [],
        "catch": bool(form.get("catch")),
        "verify": {
            "magic": bool(form.get("verify_magic")),
            "inbox": bool(form.get("verify_inbox")),
            "channels": ["sms", *(one for one in ("whatsapp", "email") if form.get(f"verify_{one}"))],
        },
    }
    try:
        plan = _typed(given) | ticked
        if not given["octets_per_day"]:
            plan["octets_per_day"] = None
        await teams.set_plan(visit.store, visit.actor, visit.team.record.id, plan)
    except InvalidRequest as refusal:
        return await show_team(visit, given, errors_of(refusal), "plan")
    return Redirect(f"{_page_of(visit)}?tab=plan", "The plan is saved.")


async def suspend(visit: Visit) -> Answer:
    suspended = visit.form.get("suspended") == "yes"
    await teams.set_suspended(visit.store, visit.actor, visit.team.record.id, suspended)
    return Redirect(_page_of(visit), "The team is suspended." if suspended else "The team may send again.")


async def book(visit: Visit) -> Answer:
    given = {"amount": visit.form.get("amount", "").strip(), "note": visit.form.get("note", "").strip()}
    team = visit.team.record
    try:
        account = await credit.book(visit.store, visit.actor, Booking(team=team.id, **given))
    except InvalidRequest as refusal:
        return await show_team(visit, given, errors_of(refusal), "credit")
    return Redirect(
        f"{_page_of(visit)}?tab=credit", f"Booked. The credit is {money(account.available, team.currency)}."
    )


async def resume_direct(visit: Visit) -> Answer:
    await teams.resume_direct(visit.store, visit.actor, visit.team.record.id)
    return Redirect(_page_of(visit), "Direct emails resumed; counting starts over.")


async def show_new(visit: Visit, given: dict[str, str] | None = None, errors: dict[str, str] | None = None) -> Page:
    return Page("team_new.html", {"given": given or NEW, "errors": errors or {}}, 400 if errors else 200)


async def show_team(
    visit: Visit, given: dict[str, str] | None = None, errors: dict[str, str] | None = None, tab: str = ""
) -> Page:
    """Show a tab of the team's page; with errors, the tab whose form was submitted."""
    record = visit.team.record
    account = await visit.store.ledger.account(record.ref)
    counts = (await visit.store.reputation.counts()).get(record.ref, Counts())
    reputation = visit.store.reputation.current.get(record.id)
    plan = {name: "" if (value := getattr(record, name)) is None else value for name in PLAN}
    this_month = account.month == month_of(visit.context.clock.of(visit.team.record.ref))
    fitting = [(one.id, one.name) for one in visit.team.templates.values() if not wrong_passthrough(one)]
    since = visit.context.clock.now() - RATES_MS
    values = {
        "record": record,
        "tab": tab or (wanted if (wanted := visit.query.get("tab", "")) in TABS else ""),
        "sent": (await visit.store.figures.of_teams([record.ref], since)).get(record.ref, TeamFigures()),
        "rate": rate,
        "passthroughs": [("", "None"), *fitting],
        "account": account,
        "used": account.used if this_month else 0,
        "reputation": reputation,
        "rates": rates(counts) if counts.sends else "",
        "judged": "" if reputation and reputation.state != "ok" else _unjudged(counts.sends),
        "window_sends": WINDOW_SENDS,
        "given": plan | {"amount": "", "note": ""} | (given or {}),
        "errors": errors or {},
    }
    return Page("operator_team.html", values, 400 if errors else 200)


def _unjudged(sends: int) -> str:
    """Return why the reputation is not rated yet; empty if it is rated."""
    if not sends:
        return "Nothing to judge yet."
    return "" if sends >= MIN_SENDS else f"Too few to judge ({sends} of {MIN_SENDS})."


def _typed(given: dict[str, str]) -> dict[str, Any]:
    """Convert numeric fields to numbers; an invalid number stays text, so that validation reports it."""
    numbers = {name: whole_number(given[name], 15) for name in NUMBERS if name in given}
    return given | {name: number for name, number in numbers.items() if number is not None}


def _page_of(visit: Visit) -> str:
    return f"{HERE}/teams/{visit.team.record.id}"
