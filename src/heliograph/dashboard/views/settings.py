"""A team's settings: name, threshold of low-credit notices, retention, sandbox and live mode."""

import asyncio
import re

from heliograph.dashboard.page_request import Page, PageRequest, PageResponse, Redirect, field_errors
from heliograph.dashboard.render import names_with_verb
from heliograph.domain.limits import DAY_MS, SECOND_MS
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.sending.pricing import format_amount
from heliograph.domain.setup.going_live import checklist, may_go_live
from heliograph.manage import team_clock, teams
from heliograph.storage.retention import DELIVERIES_RETENTION_MS

DELIVERIES_KEPT_DAYS = DELIVERIES_RETENTION_MS // DAY_MS
HOUR_S = 3600
CLOCK_MOVE_WAIT_S = 3.0  # maximum wait until the test clock has moved
POLL_S = 0.05
RETENTION_FIELDS = ("keep_content_days", "keep_messages_days")


async def save(request: PageRequest) -> PageResponse:
    values = {name: request.form.get(name, "").strip() for name in ("name", "credit_low", "approval_hours")}
    fields = values | {"approval_hours": _to_number(values["approval_hours"])}
    is_operator = request.has_role("operator")
    try:
        team = await teams.save_settings(
            request.store, request.actor, request.team.record.id, fields, by_operator=is_operator
        )
    except InvalidRequest as refusal:
        return await show(request, values, field_errors(refusal))
    approval_notice = f" The name {team.wanted} is waiting for approval." if team.wanted and not is_operator else ""
    return Redirect(f"{request.team_path}/settings", f"Team saved.{approval_notice}")


async def save_retention(request: PageRequest) -> PageResponse:
    values = {name: request.form.get(name, "").strip() for name in RETENTION_FIELDS}
    days = {name: _to_number(text) for name, text in values.items()}
    try:
        await teams.set_retention(request.store, request.actor, request.team.record.id, days)
    except InvalidRequest as refusal:
        return await show(request, values, field_errors(refusal))
    return Redirect(f"{request.team_path}/settings", "Retention saved.")


def _to_number(text: str) -> int | str:
    """Return a whole number; other text unchanged, for the error message of its field."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else text


async def save_categories(request: PageRequest) -> PageResponse:
    text = request.form.get("categories", "")
    categories = list(dict.fromkeys(text.replace(",", " ").split()))
    try:
        await teams.set_categories(request.store, request.actor, request.team.record.id, categories)
    except InvalidRequest as refusal:
        return await show(request, {"categories": text}, {"categories": str(refusal)})
    return Redirect(f"{request.team_path}/settings", "Categories saved.")


async def set_test_clock(request: PageRequest) -> PageResponse:
    is_on = request.form.get("on") == "yes"
    try:
        await teams.set_test_clock(request.store, request.actor, request.team.record.id, is_on)
    except InvalidRequest as refusal:
        return await show(request, errors=field_errors(refusal))
    notice = "Test clock turned on." if is_on else "Test clock turned off. Messages, codes and events were deleted."
    return Redirect(f"{request.team_path}/settings", notice)


async def advance(request: PageRequest) -> PageResponse:
    """Advance the team's test clock, and briefly wait until the work that becomes due is done."""
    hours = request.form.get("hours", "").strip()
    try:
        seconds = int(hours) * HOUR_S if re.fullmatch("[0-9]{1,5}", hours) else 0
        await team_clock.advance(request.store, request.actor, request.team, seconds)
    except InvalidRequest as refusal:
        return await show(request, {"hours": hours}, {"hours": field_errors(refusal).get("advance_s", "")})
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CLOCK_MOVE_WAIT_S
    while request.is_clock_moving and loop.time() < deadline:
        await asyncio.sleep(POLL_S)
    moving_notice = "The test clock is moving. Everything that becomes due is processed."
    return Redirect(_page_to_return_to(request), moving_notice if request.is_clock_moving else "Test clock moved.")


def _page_to_return_to(request: PageRequest) -> str:
    """Return the team's page from which the form was sent; otherwise the settings."""
    path = request.form.get("back", "")
    is_own = path == request.team_path or path.startswith(f"{request.team_path}/")
    return path if is_own and path.isprintable() else f"{request.team_path}/settings"


async def go_live(request: PageRequest) -> PageResponse:
    try:
        await teams.go_live(request.store, request.actor, request.team.record.id)
    except InvalidRequest as refusal:
        return await show(request, errors=field_errors(refusal))
    return Redirect(f"{request.team_path}/settings", _live_notice(request.simulated_channel_names))


def _live_notice(simulated_channel_names: list[str]) -> str:
    if not simulated_channel_names:
        return "The team is live. Messages are now sent to real recipients."
    return f"The team is live. {names_with_verb(simulated_channel_names)} still simulated and not really sent yet."


async def return_to_sandbox(request: PageRequest) -> PageResponse:
    await teams.return_to_sandbox(request.store, request.actor, request.team.record.id)
    return Redirect(
        f"{request.team_path}/settings", "The team is in the sandbox. Messages now only go to verified recipients."
    )


async def show(
    request: PageRequest, typed_values: dict[str, str] | None = None, errors: dict[str, str] | None = None
) -> Page:
    team = request.team
    account = await request.store.ledger.get_account(team.record.ref)
    checks = checklist(team, request.setup.carriers, account.available)
    record = team.record
    name = record.wanted if record.wanted and not record.wanted_refused else record.name
    stored_values = {"name": name, "credit_low": format_amount(team.record.credit_low)}
    stored_values |= {name: str(getattr(team.record, name)) for name in (*RETENTION_FIELDS, "approval_hours")}
    stored_values["categories"] = ", ".join(team.record.categories)
    typed_values = stored_values | {"hours": "24"} | (typed_values or {})
    offset_ms = request.setup.clock_offsets.get(record.ref, 0)
    page_values = {
        "values": typed_values,
        "checks": checks,
        "ready": may_go_live(checks),
        "deliveries_days": DELIVERIES_KEPT_DAYS,
        "team_now": request.context.clock.team_now(record.ref),
        "ahead_hours": offset_ms // SECOND_MS // HOUR_S,
    }
    return Page.form("settings.html", page_values, errors)
