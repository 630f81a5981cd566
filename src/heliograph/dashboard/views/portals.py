"""One-time links to portals. A GET does not use up a link, so that mail scanners and previews cannot invalidate it."""

from heliograph.dashboard.page_request import PORTAL_COOKIE, Page, PageNotFound, PageRequest, PageResponse, Redirect
from heliograph.dashboard.portal import first_page
from heliograph.domain.accounts.portal import SESSION_LIFETIME_MS
from heliograph.domain.limits import SECOND_MS
from heliograph.manage import portals

LINK_INVALID = "This link is no longer valid. Go back to the app that you came from and open it again."


async def show(request: PageRequest) -> PageResponse:
    portal = await portals.find_link(request.store, request.params["token"])
    if portal is None:
        raise PageNotFound(LINK_INVALID)
    return Page("portal_link.html", {"team": request.setup.teams[portal.team]})


async def follow(request: PageRequest) -> PageResponse:
    opened = await portals.open_portal(request.store, request.params["token"], request.client_ip)
    if opened is None:
        raise PageNotFound(LINK_INVALID)
    portal, token = opened
    cookie = f"{PORTAL_COOKIE}={token}; Max-Age={SESSION_LIFETIME_MS // SECOND_MS}"
    return Redirect(first_page(portal), cookies=(cookie,))
