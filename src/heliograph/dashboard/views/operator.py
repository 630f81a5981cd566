"""Teams of the instance, for operators: creation, suspension, deletion, credit, plan, and resuming paused email."""

from typing import Any

from heliograph.dashboard.alerts import emails_used_this_month
from heliograph.dashboard.page_request import Page, PageRequest, PageResponse, Redirect, field_errors
from heliograph.dashboard.render import format_currency
from heliograph.dashboard.views.health import format_rate
from heliograph.domain.limits import DAY_MS
from heliograph.domain.mail.reputation import MIN_SENDS, WINDOW_SENDS, Counts, describe_rates
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.source_options import pool_names
from heliograph.domain.text import parse_int
from heliograph.manage import credit, teams
from heliograph.manage.credit import CreditAdjustment
from heliograph.storage.stats import TeamTotals
from heliograph.templates.policy.values import passthrough_error
from heliograph.texts.dashboard_links import OPERATOR as OPERATOR_PATH
from heliograph.texts.dashboard_links import team_page

NEW_TEAM_DEFAULTS = {"name": "", "id": "", "currency": "USD", "email_quota": "10000", "credit": "0"}
NUMBER_FIELDS = ("email_quota", "rate_limit", "marketing_per_day", "octets_per_day", "domains_max")
PLAN_FIELDS = (*NUMBER_FIELDS, "segmenting", "passthrough", "pool")
TABS = ("credit", "plan")  # tabs in addition to the summary
RATES_WINDOW_MS = 30 * DAY_MS


async def create(request: PageRequest) -> PageResponse:
    values = {name: request.form.get(name, default).strip() for name, default in NEW_TEAM_DEFAULTS.items()}
    try:
        new_team = {name: value for name, value in _convert_numbers(values).items() if name != "id" or value}
        team = await teams.create(request.store, request.actor, new_team)
    except InvalidRequest as refusal:
        return await show_new(request, values, field_errors(refusal))
    if len(request.setup.teams) == 1:
        return Redirect(team_page(team.id), "Team created. Send a test message to try it out.")
    return Redirect(f"{OPERATOR_PATH}/teams/{team.id}", "Team created. Invite members to start in the sandbox.")


async def set_plan(request: PageRequest) -> PageResponse:
    form = request.form
    values = {name: form.get(name, "").strip() for name in PLAN_FIELDS}
    checkbox_values = {
        "features": ["verify"] if form.get("verify") else [],
        "catch": bool(form.get("catch")),
        "verify": {
            "magic": bool(form.get("verify_magic")),
            "inbox": bool(form.get("verify_inbox")),
            "channels": ["sms", *(channel for channel in ("whatsapp", "email") if form.get(f"verify_{channel}"))],
        },
    }
    try:
        plan = _convert_numbers(values) | checkbox_values
        if not values["octets_per_day"]:
            plan["octets_per_day"] = None
        if not values["pool"]:  # the field is only shown if there are pools
            del plan["pool"]
        await teams.set_plan(request.store, request.actor, request.team.record.id, plan)
    except InvalidRequest as refusal:
        return await show_team(request, values, field_errors(refusal), "plan")
    return Redirect(f"{_team_page_url(request)}?tab=plan", "Plan saved.")


async def suspend_team(request: PageRequest) -> PageResponse:
    suspended = request.form.get("suspended") == "yes"
    await teams.set_suspended(request.store, request.actor, request.team.record.id, suspended)
    return Redirect(_team_page_url(request), "Team suspended." if suspended else "Team resumed. It can send again.")


async def delete_team(request: PageRequest) -> PageResponse:
    await teams.request_deletion(request.store, request.actor, request.team.record.id)
    return Redirect(_team_page_url(request), "Team suspended. It will be deleted in 30 days.")


async def restore_team(request: PageRequest) -> PageResponse:
    record = await teams.restore(request.store, request.actor, request.team.record.id)
    notice = "Team restored. It is still suspended." if record.suspended else "Team restored. It can send again."
    return Redirect(_team_page_url(request), notice)


async def adjust_credit(request: PageRequest) -> PageResponse:
    values = {"amount": request.form.get("amount", "").strip(), "note": request.form.get("note", "").strip()}
    team = request.team.record
    try:
        account = await credit.adjust_credit(request.store, request.actor, CreditAdjustment(team=team.id, **values))
    except InvalidRequest as refusal:
        return await show_team(request, values, field_errors(refusal), "credit")
    return Redirect(
        f"{_team_page_url(request)}?tab=credit",
        f"Credit changed. Available: {format_currency(account.available, team.currency)}.",
    )


async def resume_direct(request: PageRequest) -> PageResponse:
    await teams.resume_direct_sends(request.store, request.actor, request.team.record.id)
    return Redirect(_team_page_url(request), "Direct emails resumed. Bounce and complaint counters restarted.")


async def show_new(
    request: PageRequest, values: dict[str, str] | None = None, errors: dict[str, str] | None = None
) -> Page:
    return Page(
        "team_new.html", {"values": values or NEW_TEAM_DEFAULTS, "errors": errors or {}}, 400 if errors else 200
    )


async def show_team(
    request: PageRequest,
    typed_values: dict[str, str] | None = None,
    errors: dict[str, str] | None = None,
    tab: str = "",
) -> Page:
    """Show a tab of the team's page; with errors, the one whose form was submitted."""
    record = request.team.record
    account = await request.store.ledger.get_account(record.ref)
    counts = (await request.store.reputations.read_counts()).get(record.ref, Counts())
    reputation = request.store.reputations.current.get(record.id)
    plan = {name: "" if (value := getattr(record, name)) is None else value for name in PLAN_FIELDS}
    usable_templates = [
        (template.id, template.name) for template in request.team.templates.values() if not passthrough_error(template)
    ]
    since = request.context.clock.now() - RATES_WINDOW_MS
    page_values = {
        "record": record,
        "tab": tab or (query_tab if (query_tab := request.query.get("tab", "")) in TABS else ""),
        "sent": (await request.store.stats.team_totals([record.ref], since)).get(record.ref, TeamTotals()),
        "rate": format_rate,
        "passthroughs": [("", "None"), *usable_templates],
        "pools": pool_names(request.setup.carriers),
        "account": account,
        "used": emails_used_this_month(account, request.context.clock.team_now(record.ref)),
        "reputation": reputation,
        "rates": describe_rates(counts) if counts.sends else "",
        "judged": "" if reputation and reputation.state != "ok" else _unrated_reason(counts.sends),
        "window_sends": WINDOW_SENDS,
        "values": plan | {"amount": "", "note": ""} | (typed_values or {}),
    }
    return Page.form("operator_team.html", page_values, errors)


def _unrated_reason(sends: int) -> str:
    """Return why the reputation has no rating yet; empty if it has one."""
    if not sends:
        return "No emails yet."
    return "" if sends >= MIN_SENDS else f"Not judged below {MIN_SENDS} emails ({sends} so far)."


def _convert_numbers(values: dict[str, str]) -> dict[str, Any]:
    """Convert numeric fields. An invalid number remains text, so that validation reports it."""
    numbers = {name: parse_int(values[name], 15) for name in NUMBER_FIELDS if name in values}
    return values | {name: number for name, number in numbers.items() if number is not None}


def _team_page_url(request: PageRequest) -> str:
    return f"{OPERATOR_PATH}/teams/{request.team.record.id}"
