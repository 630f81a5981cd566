"""Paths of portals: a portal shows some of a team's dashboard pages, under URLs of its own.

A browser may have a session of the dashboard and one of a portal. Requests below `/dashboard/portal/` ignore the
dashboard's session, and all other requests ignore the portal's session.
"""

from heliograph.dashboard.navigation import MENU, NavItem
from heliograph.domain.accounts.portal import Portal, PortalPage
from heliograph.texts.dashboard_links import HOME, PORTAL, TEAMS

# page of a portal → path below the team's pages; pages below this path belong to it
PATH_BY_PAGE: dict[PortalPage, str] = {
    "webhooks": "/webhooks",
    "events": "/events",
    "domains": "/senders",
    "keys": "/keys",
}
PORTAL_TEAMS = f"{PORTAL}{TEAMS.removeprefix(HOME)}/"


def portal_path(path: str) -> str:
    """Return the path of a dashboard page in a portal."""
    return PORTAL + path.removeprefix(HOME)


def dashboard_path(path: str) -> str:
    """Return the dashboard's path for a page of a portal; other paths are returned unchanged."""
    return HOME + path.removeprefix(PORTAL) if path.startswith(PORTAL_TEAMS) else path


def permits_page(portal: Portal, path: str) -> bool:
    """Return whether the portal permits the page. `path` is relative to the team's pages."""
    if path.endswith("/restrictions"):  # only people and operators may change restrictions
        return False
    permitted = [PATH_BY_PAGE[page] for page in portal.pages]
    return any(f"{path}/".startswith(f"{prefix}/") for prefix in permitted)


def first_page(portal: Portal) -> str:
    """Return the path of the page that the portal opens."""
    return portal_path(f"{TEAMS}/{portal.team}{PATH_BY_PAGE[portal.pages[0]]}")


def portal_menu(portal: Portal) -> list[NavItem]:
    return [item for items in MENU.values() for item in items if item.path and permits_page(portal, item.path)]
