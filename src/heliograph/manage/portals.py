"""Portals: a platform key gives its own users access to some of a team's pages, by a single-use link."""

from collections.abc import Sequence

from heliograph.changes.fields import check_fields
from heliograph.domain.accounts.portal import PORTAL_PAGES, Portal, PortalPage, is_usable, read_return_url
from heliograph.domain.audit.actor import Actor
from heliograph.manage.teams import get_team
from heliograph.storage.portals import PortalLink
from heliograph.storage.store import Store


async def create_link(
    store: Store, actor: Actor, team: str, pages: Sequence[PortalPage], return_url: str | None
) -> PortalLink:
    """Create a portal link as a platform key. `return_url`: target of the portal's Back link; None for no Back link."""
    record = get_team(store.setup.current, team).record
    errors = {} if pages else {"pages": f"pages: name at least one of {', '.join(PORTAL_PAGES)}."}
    try:
        checked_url = "" if return_url is None else read_return_url(return_url)
    except ValueError as error:
        errors["return_url"] = f"return_url: {error}."
    check_fields(errors)
    portal = Portal(
        id=store.clock.new_id("ptl_"),
        platform_key=actor.id,
        team=team,
        pages=tuple(dict.fromkeys(pages)),
        return_url=checked_url,
    )
    entry = actor.audit_entry(store.clock.now(), "portal.link", record.name, ", ".join(portal.pages), team=team)
    return await store.portals.create_link(portal, entry)


async def find_link(store: Store, token: str) -> Portal | None:
    """Return the portal of a link that can still be opened; None if it cannot."""
    return _usable_or_none(store, await store.portals.find_link(token))


async def find_session(store: Store, token: str) -> Portal | None:
    """Return the open portal that a session cookie belongs to; None if there is none."""
    return _usable_or_none(store, await store.portals.find_session(token))


async def open_portal(store: Store, token: str, address: str) -> tuple[Portal, str] | None:
    """Use up a link. Return its portal and the new session's cookie, or None if the link is no longer valid."""
    portal = await find_link(store, token)
    if portal is None:
        return None
    name = get_team(store.setup.current, portal.team).record.name
    entry = portal_actor(portal, address).audit_entry(
        store.clock.now(), "portal.open", name, ", ".join(portal.pages), team=portal.team
    )
    cookie = await store.portals.open(token, entry)
    return (portal, cookie) if cookie else None


def portal_actor(portal: Portal, address: str) -> Actor:
    """Return the actor of changes made in a portal: the platform key, with the visitor's IP address."""
    return Actor(kind="key", id=portal.platform_key, address=address)


def _usable_or_none(store: Store, portal: Portal | None) -> Portal | None:
    return portal if portal and is_usable(portal, store.setup.current, store.clock.now()) else None
