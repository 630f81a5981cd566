"""Paths of portals: the pages of a team that each permits, at URLs of their own.

A portal's pages have other URLs than the dashboard's, so that the two sessions of a browser never mix: requests below
`/dashboard/portal/` ignore the session of the dashboard, and all others ignore the session of the portal.
"""

from heliograph.dashboard.navigation import MENU, NavItem
from heliograph.domain.accounts.portal import Portal, PortalPage
from heliograph.texts.dashboard_links import HOME, PORTAL, TEAMS

# Page of a portal → path below the team's pages. The page includes all pages below that path.
PATH_BY_PAGE: dict[PortalPage, str] = {
    "webhooks": "/webhooks",
    "events": "/events",
    "domains": "/senders",
    "keys": "/keys",
}
PORTAL_TEAMS = f"{PORTAL}{TEAMS.removeprefix(HOME)}/"


def portal_path(path: str) -> str:
    """Return the path in a portal of a dashboard page."""
    return PORTAL + path.removeprefix(HOME)


def dashboard_path(path: str) -> str:
    """Return the dashboard's path of a portal's page; other paths are returned unchanged."""
    return HOME + path.removeprefix(PORTAL) if path.startswith(PORTAL_TEAMS) else path


def permits_page(portal: Portal, path: str) -> bool:
    """Return whether the portal permits the page at `path`, which is relative to the team's pages."""
    if path.endswith("/restrictions"):  # only people and operators may change what a key may do
        return False
    permitted = [PATH_BY_PAGE[page] for page in portal.pages]
    return any(f"{path}/".startswith(f"{prefix}/") for prefix in permitted)


def first_page(portal: Portal) -> str:
    """Return the path of the page that the portal opens."""
    return portal_path(f"{TEAMS}/{portal.team}{PATH_BY_PAGE[portal.pages[0]]}")


def portal_menu(portal: Portal) -> list[NavItem]:
    return [item for items in MENU.values() for item in items if item.path and permits_page(portal, item.path)]
