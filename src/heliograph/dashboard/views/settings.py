"""A team's settings: its name, when low credit is told, what is kept how long, and the way from sandbox to live."""

from msgspec.structs import replace

from heliograph.dashboard.visit import Answer, Page, Redirect, Visit
from heliograph.rules.going_live import checklist, may_go_live
from heliograph.rules.limits import DAY_MS
from heliograph.rules.pricing import format_money
from heliograph.rules.setup import Setup, to_row
from heliograph.rules.setup_file import read_team_fields
from heliograph.storage import housekeeping
from heliograph.storage.store import SetupChange

KEPT_DAYS = {
    "Content of messages": housekeeping.BODY_KEPT_MS // DAY_MS,
    "Webhook deliveries": housekeeping.DELIVERIES_KEPT_MS // DAY_MS,
    "Messages, verifications and their timelines": housekeeping.KEPT_MS // DAY_MS,
}


async def show(visit: Visit) -> Answer:
    return await _page(visit)


async def save(visit: Visit) -> Answer:
    given = {name: visit.form.get(name, "").strip() for name in ("name", "credit_low")}
    fields, errors = read_team_fields(given)
    if errors:
        return await _page(visit, given, errors)
    id_ = visit.team.record.id

    def decide(current: Setup) -> SetupChange:
        before = current.teams[id_].record
        after = replace(before, **fields)
        return SetupChange(rows=[to_row("team", id_, after, id_)] if after != before else ())

    await visit.change_setup("team.change", id_, decide, ", ".join(fields))
    return Redirect(f"{visit.base}/settings", "Saved.")


async def go_live(visit: Visit) -> Answer:
    id_ = visit.team.record.id
    credit = (await visit.desk.store.account(visit.team.record.ref)).available

    def decide(current: Setup) -> SetupChange:
        team = current.teams[id_]
        if not team.sandbox or not may_go_live(checklist(team, current.carriers, credit)):
            return SetupChange()
        return SetupChange(rows=[to_row("team", id_, replace(team.record, mode="live"), id_)])

    done = await visit.change_setup("team.live", id_, decide)
    if not done.rows:
        return await _page(visit, errors={"live": "Not yet: see what is still needed."})
    return Redirect(f"{visit.base}/settings", "The team is live. What it sends now reaches people.")


async def _page(visit: Visit, given: dict[str, str] | None = None, errors: dict[str, str] | None = None) -> Page:
    team = visit.team
    account = await visit.desk.store.account(team.record.ref)
    checks = checklist(team, visit.setup.carriers, account.available)
    given = given or {"name": team.record.name, "credit_low": format_money(team.record.credit_low)}
    values = {"given": given, "errors": errors or {}, "checks": checks, "ready": may_go_live(checks), "kept": KEPT_DAYS}
    return Page("settings.html", values, 400 if errors else 200)
