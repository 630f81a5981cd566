"""A team's settings: its name, when low credit is told, what is kept how long, from sandbox to live and back."""

import re
from typing import Any

from msgspec.structs import replace

from heliograph.dashboard.visit import Answer, Page, Redirect, Visit
from heliograph.rules.limits import DAY_MS
from heliograph.rules.pricing import format_money
from heliograph.rules.setup.file import read_team_fields
from heliograph.rules.setup.going_live import checklist, may_go_live
from heliograph.rules.setup.snapshot import Setup, to_row
from heliograph.storage import retention
from heliograph.storage.setup import SetupChange

DELIVERIES_DAYS = retention.DELIVERIES_KEPT_MS // DAY_MS
KEEP = ("keep_content_days", "keep_messages_days")


async def show(visit: Visit) -> Answer:
    return await _page(visit)


async def save(visit: Visit) -> Answer:
    given = {name: visit.form.get(name, "").strip() for name in ("name", "credit_low")}
    fields, errors = read_team_fields(given)
    if not errors and not visit.may("operator"):  # recipients are told the name: another one waits for an operator
        name = fields.pop("name")
        fields |= {"wanted": name if name != visit.team.record.name else "", "wanted_refused": ""}
    return await _save(visit, "team.change", given, fields, errors)


async def keep(visit: Visit) -> Answer:
    """How long content and messages are kept."""
    given = {name: visit.form.get(name, "").strip() for name in KEEP}
    days = {name: int(text) if re.fullmatch("[0-9]{1,9}", text) else text for name, text in given.items()}
    fields, errors = read_team_fields(days)
    if not errors and (wrong := replace(visit.team.record, **fields).wrong_days):
        errors = {"keep_messages_days": wrong}
    return await _save(visit, "team.keep", given, fields, errors)


async def _save(
    visit: Visit, action: str, given: dict[str, str], fields: dict[str, Any], errors: dict[str, str]
) -> Answer:
    if errors:
        return await _page(visit, given, errors)
    id_ = visit.team.record.id

    def decide(current: Setup) -> SetupChange:
        before = current.teams[id_].record
        after = replace(before, **fields)
        return SetupChange(rows=[to_row("team", id_, after, id_)] if after != before else ())

    detail = ", ".join(f"{name}={value}" if name in KEEP else name for name, value in fields.items())
    await visit.change_setup(action, id_, decide, detail)
    asked = fields.get("wanted")
    told = f"Saved. The name {asked} waits for the operator's approval." if asked else "Saved."
    return Redirect(f"{visit.base}/settings", told)


async def go_live(visit: Visit) -> Answer:
    id_ = visit.team.record.id
    credit = (await visit.context.store.ledger.account(visit.team.record.ref)).available

    def decide(current: Setup) -> SetupChange:
        team = current.teams[id_]
        if not team.sandbox or not may_go_live(checklist(team, current.carriers, credit)):
            return SetupChange()
        return SetupChange(rows=[to_row("team", id_, replace(team.record, mode="live"), id_)])

    done = await visit.change_setup("team.live", id_, decide)
    if not done.rows:
        return await _page(visit, errors={"live": "Not yet: see what is still needed."})
    return Redirect(f"{visit.base}/settings", _told(visit.simulated))


def _told(simulated: list[str]) -> str:
    if not simulated:
        return "The team is live. What it sends now reaches people."
    return f"The team is live. {', '.join(simulated)}: still simulated, so that nothing of it reaches anybody yet."


async def leave_live(visit: Visit) -> Answer:
    """Back to the sandbox. What was accepted live keeps its mode: it is delivered and charged."""
    id_ = visit.team.record.id

    def decide(current: Setup) -> SetupChange:
        team = current.teams[id_]
        return SetupChange(
            rows=() if team.sandbox else [to_row("team", id_, replace(team.record, mode="sandbox"), id_)]
        )

    await visit.change_setup("team.sandbox", id_, decide)
    return Redirect(
        f"{visit.base}/settings", "The team is in the sandbox. What it sends now reaches nobody unverified."
    )


async def _page(visit: Visit, given: dict[str, str] | None = None, errors: dict[str, str] | None = None) -> Page:
    team = visit.team
    account = await visit.context.store.ledger.account(team.record.ref)
    checks = checklist(team, visit.setup.carriers, account.available)
    record = team.record
    name = record.wanted if record.wanted and not record.wanted_refused else record.name
    stored = {"name": name, "credit_low": format_money(team.record.credit_low)}
    stored |= {name: str(getattr(team.record, name)) for name in KEEP}
    given = stored | (given or {})
    values = {
        "given": given,
        "errors": errors or {},
        "checks": checks,
        "ready": may_go_live(checks),
        "deliveries_days": DELIVERIES_DAYS,
    }
    return Page("settings.html", values, 400 if errors else 200)
