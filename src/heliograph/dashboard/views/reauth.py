"""Re-authentication before sensitive changes, so that an open session cannot be used to take over the account."""

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
    """Return why the user could not be re-authenticated; empty on success."""
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
    """Return whether the user must re-authenticate at the provider, because the account has no password.

    False without a provider, for example for the demo account.
    """
    return visit.tools.provider is not None and not person.password and not _is_proven(visit)


def _is_proven(visit: Visit) -> bool:
    try:
        until = visit.tools.unseal(visit.cookies.get(COOKIE, ""), _place(visit))
    except CannotOpen:
        return False
    return int(until) > visit.context.clock.now()


def cookie(visit: Visit) -> str:
    """Return the cookie for a Redirect that marks this session as re-authenticated from now on."""
    until = visit.context.clock.now() + LASTS_MS
    return f"{COOKIE}={visit.tools.seal(str(until).encode(), _place(visit))}; Max-Age={LASTS_MS // SECOND_MS}"


def _place(visit: Visit) -> str:
    return f"proof/{visit.person.session}"
