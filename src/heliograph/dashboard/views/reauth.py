"""Whether somebody who is signed in has proven it just now: an open session must not become another's for ever."""

from heliograph.dashboard.page_request import Visit
from heliograph.dashboard.passwords import is_right
from heliograph.dashboard.views.sign_in import begin_try
from heliograph.domain.accounts.people import Person
from heliograph.domain.limits import MINUTE_MS, SECOND_MS
from heliograph.encryption import CannotOpen

COOKIE = "heliograph_proof"
LASTS_MS = 10 * MINUTE_MS
WRONG = "This is not your password."
UNPROVEN = "Confirm it's you first."


async def why_unproven(visit: Visit, person: Person, password: str) -> str:
    """Say why it may be somebody else; empty: it is this person."""
    if not person.password:
        return UNPROVEN if must_prove(visit, person) else ""
    attempt = await begin_try(visit, person.email, person)
    if not attempt.names:
        return attempt.instead
    if not await is_right(person.password, password):
        return WRONG
    await visit.store.tries.forgive(attempt.names)
    return ""


def must_prove(visit: Visit, person: Person) -> bool:
    """Tell whether the person must show it at the provider: who has no password does.

    Without a provider there is nobody to ask: the demo's link, for one.
    """
    return visit.tools.provider is not None and not person.password and not _is_proven(visit)


def _is_proven(visit: Visit) -> bool:
    try:
        until = visit.tools.unseal(visit.cookies.get(COOKIE, ""), _place(visit))
    except CannotOpen:
        return False
    return int(until) > visit.context.clock.now()


def cookie(visit: Visit) -> str:
    """Make a cookie for a Redirect: from now on it is proven, in this session alone."""
    until = visit.context.clock.now() + LASTS_MS
    return f"{COOKIE}={visit.tools.seal(str(until).encode(), _place(visit))}; Max-Age={LASTS_MS // SECOND_MS}"


def _place(visit: Visit) -> str:
    return f"proof/{visit.person.session}"
