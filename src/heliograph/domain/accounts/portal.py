"""Portals: time-limited access to some of a team's dashboard pages, given by a platform key (contract 20)."""

import re
from typing import Literal, get_args

import msgspec

from heliograph.domain.limits import HOUR_MS, MINUTE_MS
from heliograph.domain.network.client_address import is_loopback_or_in
from heliograph.domain.network.ssrf import loopback_address
from heliograph.domain.setup.keys import is_valid
from heliograph.domain.setup.snapshot import PLATFORM_TEAM, Setup
from heliograph.domain.text import quoted
from heliograph.webhooks.policy.webhook_url import Target, parse_target

PortalPage = Literal["webhooks", "events", "domains", "keys"]
PORTAL_PAGES: tuple[PortalPage, ...] = get_args(PortalPage)
LINK_LIFETIME_MS = 10 * MINUTE_MS  # how long a link can be opened
SESSION_LIFETIME_MS = HOUR_MS  # how long a portal stays open, regardless of use

_FRAGMENT = re.compile(r"[!-~]*")  # visible ASCII


class Portal(msgspec.Struct, frozen=True, kw_only=True):
    """A portal: a link that was not opened yet, or an open session."""

    id: str
    platform_key: str  # public id of the key that created the link; changes in the portal are logged as the key's
    team: str
    pages: tuple[PortalPage, ...]
    return_url: str  # empty if there is none
    csrf: str = ""  # empty until the link is opened


def is_usable(portal: Portal, setup: Setup, now: int) -> bool:
    """Return whether the portal's platform key is still valid and its team neither suspended nor deleted."""
    caller, team = setup.callers.get(portal.platform_key), setup.teams.get(portal.team)
    if caller is None or team is None or team.record.suspended:
        return False
    return caller.key.team == PLATFORM_TEAM and is_valid(caller.key, now)


def read_return_url(url: str) -> str:
    """Return the URL if it is an https URL, or an http URL of this machine; raise ValueError otherwise."""
    base, _, fragment = url.partition("#")
    _check_scheme(parse_target(base), url)
    if not _FRAGMENT.fullmatch(fragment):
        raise ValueError("after # only visible ASCII characters are allowed: encode others as %XX")
    return url


def read_origin(text: str) -> str:
    """Return the normalised origin, such as https://app.example.com; raise ValueError if it is invalid."""
    target = parse_target(text)
    _check_scheme(target, text)
    if target.path_and_query != "/":
        raise ValueError(f"expected an origin such as https://app.example.com, without a path, got {quoted(text)}")
    return f"{target.scheme}://{target.authority}"


def _check_scheme(target: Target, text: str) -> None:
    is_local = loopback_address(target.host) or (target.ip and is_loopback_or_in(target.ip, ()))
    if target.scheme != "https" and not is_local:
        raise ValueError(f"expected https://, or http:// on this machine, got {quoted(text)}")
