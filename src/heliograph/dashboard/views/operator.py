"""Teams of the instance: found, made, suspended, given credit and a plan, let send again."""

from typing import Any

from msgspec.structs import replace

from heliograph.dashboard.visit import Answer, Page, Redirect, Visit, errors_of
from heliograph.manage import credit
from heliograph.manage.credit import Booking
from heliograph.rules.pricing import format_money, month_of
from heliograph.rules.refusals import InvalidRequest
from heliograph.rules.reputation import Counts, rates
from heliograph.rules.setup.file import read_team_fields
from heliograph.rules.setup.records import Team, TeamRecord
from heliograph.rules.setup.snapshot import Setup, to_row
from heliograph.storage.setup import NewTeam, SetupChange

HERE = "/dashboard/operator"
PAGE = 50
NEW = {"name": "", "id": "", "currency": "USD", "email_quota": "10000", "credit": "0"}
PLAN = ("email_quota", "rate_limit", "marketing_per_day", "domains_max", "segmenting")
NUMBERS = ("email_quota", "rate_limit", "marketing_per_day", "domains_max")


async def show(visit: Visit) -> Answer:
    return await _teams(visit)


async def create(visit: Visit) -> Answer:
    given = {name: visit.form.get(name, usual).strip() for name, usual in NEW.items()}
    id_ = given["id"] or visit.context.clock.new_id("team_")
    fields, errors = read_team_fields(_typed(given) | {"id": id_})
    if errors:
        return await _teams(visit, given, errors)
    credit = fields.pop("credit")

    def decide(current: Setup, ref: int) -> SetupChange:
        if id_ in current.teams:
            return SetupChange()
        record = TeamRecord(ref=ref, **fields)
        entry = replace(visit.entry("team.create", id_), team=id_)
        return SetupChange(rows=[to_row("team", id_, record, id_)], new_teams=[NewTeam(ref, credit)], audit=[entry])

    if not (await visit.context.store.setup.change(decide)).rows:
        return await _teams(visit, given, {"id": "There is a team with this id already."})
    if len(visit.setup.teams) == 1:
        return Redirect(f"/dashboard/teams/{id_}", "The team is made. Send a test message to see it work.")
    return Redirect(f"{HERE}/teams/{id_}", "The team is made. Add its people, and it can begin in the sandbox.")


async def show_team(visit: Visit) -> Answer:
    return await _team(visit)


async def set_plan(visit: Visit) -> Answer:
    given = {name: visit.form.get(name, "").strip() for name in PLAN}
    fields, errors = read_team_fields(_typed(given))
    if errors:
        return await _team(visit, given, errors)
    fields["features"] = ("verify",) if visit.form.get("verify") else ()
    fields["verify"] = replace(visit.team.record.verify, magic=bool(visit.form.get("verify_magic")))
    await _change(visit, "team.plan", fields)
    return Redirect(_place(visit), "The plan is changed.")


async def suspend(visit: Visit) -> Answer:
    suspended = visit.form.get("suspended") == "yes"
    await _change(visit, "team.suspend" if suspended else "team.resume", {"suspended": suspended})
    return Redirect(_place(visit), "The team is suspended." if suspended else "The team may send again.")


async def book(visit: Visit) -> Answer:
    given = {"amount": visit.form.get("amount", "").strip(), "note": visit.form.get("note", "").strip()}
    team = visit.team.record
    try:
        account = await credit.book(visit.context.store, visit.actor, Booking(team=team.id, **given))
    except InvalidRequest as refusal:
        return await _team(visit, given, errors_of(refusal))
    return Redirect(_place(visit), f"Booked. The credit is {format_money(account.available)} {team.currency}.")


async def resume_direct(visit: Visit) -> Answer:
    id_ = visit.team.record.id
    if await visit.context.store.reputation.resume(id_):
        await visit.note("reputation.resume", id_)
    return Redirect(_place(visit), "Direct sends go on; counting begins anew.")


async def _teams(visit: Visit, given: dict[str, str] | None = None, errors: dict[str, str] | None = None) -> Page:
    wanted, after = visit.query.get("q", "").strip(), visit.query.get("after", "")
    teams = [team for team in visit.setup.teams.values() if _fits(team, wanted.lower())]
    teams.sort(key=_order)
    if after in visit.setup.teams:
        teams = [team for team in teams if _order(team) > _order(visit.setup.teams[after])]
    shown = teams[:PAGE]
    values = {
        "teams": shown,
        "accounts": await visit.context.store.ledger.accounts([team.record.ref for team in shown]),
        "after": shown[-1].record.id if len(teams) > PAGE else "",
        "q": wanted,
        "given": given or NEW,
        "errors": errors or {},
    }
    return Page("operator.html", values, 400 if errors else 200)


async def _team(visit: Visit, given: dict[str, str] | None = None, errors: dict[str, str] | None = None) -> Page:
    record = visit.team.record
    account = await visit.context.store.ledger.account(record.ref)
    counts = (await visit.context.store.reputation.counts()).get(record.ref, Counts())
    plan = {name: getattr(record, name) for name in PLAN}
    this_month = account.month == month_of(visit.context.clock.now())
    values = {
        "record": record,
        "account": account,
        "used": account.used if this_month else 0,
        "reputation": visit.team.reputation,
        "rates": rates(counts),
        "given": plan | {"amount": "", "note": ""} | (given or {}),
        "errors": errors or {},
    }
    return Page("operator_team.html", values, 400 if errors else 200)


async def _change(visit: Visit, action: str, fields: dict[str, Any]) -> None:
    id_ = visit.team.record.id

    def decide(current: Setup) -> SetupChange:
        before = current.teams[id_].record
        after = replace(before, **fields)
        return SetupChange(rows=[to_row("team", id_, after, id_)] if after != before else ())

    await visit.change_setup(action, id_, decide, ", ".join(f"{name}={value}" for name, value in fields.items()))


def _typed(given: dict[str, str]) -> dict[str, Any]:
    """Numbers as numbers; what is none stays as it is, and is complained about."""
    return {
        name: int(value) if name in NUMBERS and value.isascii() and value.isdigit() and len(value) < 16 else value
        for name, value in given.items()
    }


def _fits(team: Team, wanted: str) -> bool:
    names = (team.record.id, team.record.name, *team.domains)
    return any(wanted in name.lower() for name in names)


def _order(team: Team) -> tuple[str, str]:
    return team.record.name.lower(), team.record.id


def _place(visit: Visit) -> str:
    return f"{HERE}/teams/{visit.team.record.id}"
