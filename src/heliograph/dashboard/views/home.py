"""Start page of the dashboard, and the static files of all pages."""

from functools import cache
from importlib import resources

from heliograph.dashboard.page_request import Download, Page, PageNotFound, PageRequest, PageResponse, Redirect
from heliograph.dashboard.views.invitations import pending_invitations
from heliograph.domain.limits import DAY_MS
from heliograph.texts.dashboard_links import HOME, team_page
from heliograph.web import icons

TEAMS_WITH_STATS_MAX = 100  # maximum teams for which statistics are shown
CONTENT_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
}
WEEK_S = 7 * 24 * 3600


async def redirect_to_dashboard(request: PageRequest) -> PageResponse:
    return Redirect(HOME)


async def start(request: PageRequest) -> PageResponse:
    """Redirect to the user's only team; otherwise show the teams and invitations."""
    teams = [team for id_, team in request.setup.teams.items() if request.can_view("operator") or id_ in request.roles]
    invitations = [
        (team, request.setup.teams[team].record.name if team else "", role)
        for team, role in (await pending_invitations(request)).items()
    ]
    if len(teams) == 1 and not request.can_view("operator") and not invitations:
        return Redirect(team_page(teams[0].record.id))
    since = request.context.clock.now() - DAY_MS
    sent_by_team = await request.store.stats.sent_by_hour(
        [team.record.ref for team in teams[:TEAMS_WITH_STATS_MAX]], since
    )
    accounts = await request.store.ledger.find_accounts([team.record.ref for team in teams[:TEAMS_WITH_STATS_MAX]])
    values = {
        "accounts": accounts,
        "teams": sorted(teams, key=lambda team: team.record.name),
        "sent": {ref: sum(hours.values()) for ref, hours in sent_by_team.items()},
        "is_counted": len(teams) <= TEAMS_WITH_STATS_MAX,
        "invitations": invitations,
    }
    return Page("teams.html", values)


async def static_file(request: PageRequest) -> PageResponse:
    body, content_type = _read_static_file(request.params["file"])
    max_age_s = WEEK_S if content_type == CONTENT_TYPES["woff2"] else 300
    cache_header = (b"cache-control", b"max-age=%d" % max_age_s)
    return Download(body, content_type, headers=[cache_header, (b"x-content-type-options", b"nosniff")])


@cache
def _read_static_file(name: str) -> tuple[bytes, str]:
    if name == "icons.svg":
        return icons.render_sheet(), CONTENT_TYPES["svg"]
    content_type = CONTENT_TYPES.get(name.rpartition(".")[2])
    file = resources.files("heliograph.dashboard").joinpath("static", name)
    if content_type is None or "/" in name or "\\" in name or not file.is_file():
        raise PageNotFound
    return file.read_bytes(), content_type
