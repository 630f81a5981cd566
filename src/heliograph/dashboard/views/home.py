"""Start page of the dashboard, and the static files of all pages."""

from functools import cache
from importlib import resources

from heliograph.dashboard.page_request import Answer, Download, Gone, Page, Redirect, Visit
from heliograph.dashboard.views.invitations import offered
from heliograph.domain.limits import DAY_MS
from heliograph.texts.dashboard_links import HOME, of_team
from heliograph.web import icons

COUNTED = 100  # maximum number of teams with statistics
KINDS = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
}
WEEK_S = 7 * 24 * 3600


async def front(visit: Visit) -> Answer:
    return Redirect(HOME)


async def start(visit: Visit) -> Answer:
    """Redirect to the user's only team, or show a choice of teams and invitations."""
    teams = [team for id_, team in visit.setup.teams.items() if visit.sees("operator") or id_ in visit.roles]
    invitations = [
        (team, visit.setup.teams[team].record.name if team else "", role)
        for team, role in (await offered(visit)).items()
    ]
    if len(teams) == 1 and not visit.sees("operator") and not invitations:
        return Redirect(of_team(teams[0].record.id))
    since = visit.context.clock.now() - DAY_MS
    sent = await visit.store.figures.sent_by_hour([team.record.ref for team in teams[:COUNTED]], since)
    accounts = await visit.store.ledger.accounts([team.record.ref for team in teams[:COUNTED]])
    values = {
        "accounts": accounts,
        "teams": sorted(teams, key=lambda team: team.record.name),
        "sent": {ref: sum(hours.values()) for ref, hours in sent.items()},
        "is_counted": len(teams) <= COUNTED,
        "invitations": invitations,
    }
    return Page("teams.html", values)


async def static(visit: Visit) -> Answer:
    body, kind = _file(visit.params["file"])
    age = WEEK_S if kind == KINDS["woff2"] else 300
    kept = (b"cache-control", b"max-age=%d" % age)
    return Download(body, kind, headers=[kept, (b"x-content-type-options", b"nosniff")])


@cache
def _file(name: str) -> tuple[bytes, str]:
    if name == "icons.svg":
        return icons.sheet(), KINDS["svg"]
    kind = KINDS.get(name.rpartition(".")[2])
    file = resources.files("heliograph.dashboard").joinpath("static", name)
    if kind is None or "/" in name or "\\" in name or not file.is_file():
        raise Gone
    return file.read_bytes(), kind
