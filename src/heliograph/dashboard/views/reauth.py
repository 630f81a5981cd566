"""Re-authentication before sensitive changes, so that nobody can take over an account at an open session."""

from heliograph.dashboard.page_request import PageRequest
from heliograph.dashboard.passwords import verify_password
from heliograph.dashboard.views.sign_in import begin_attempt
from heliograph.domain.accounts.people import Person
from heliograph.domain.limits import MINUTE_MS, SECOND_MS
from heliograph.encryption import DecryptionError

REAUTH_COOKIE = "heliograph_proof"
REAUTH_LIFETIME_MS = 10 * MINUTE_MS
WRONG_PASSWORD = "Wrong password."
REAUTH_REQUIRED = "Confirm it's you first."


async def reauthentication_error(request: PageRequest, person: Person, password: str) -> str:
    """Return why the user cannot be re-authenticated; empty on success."""
    if not person.password:
        return REAUTH_REQUIRED if must_reauthenticate(request, person) else ""
    attempt = await begin_attempt(request, person.email, person)
    if not attempt.limiter_keys:
        return attempt.limit_error
    if not await verify_password(person.password, password):
        return WRONG_PASSWORD
    await request.store.attempt_limiter.remove_last_attempt(attempt.limiter_keys)
    return ""


def must_reauthenticate(request: PageRequest, person: Person) -> bool:
    """Return whether the user must re-authenticate at the provider, because the account has no password.

    False if there is no provider, as for the demo's account.
    """
    return request.tools.provider is not None and not person.password and not _is_reauthenticated(request)


def _is_reauthenticated(request: PageRequest) -> bool:
    try:
        expires_at = request.tools.decrypt(request.cookies.get(REAUTH_COOKIE, ""), _encryption_context(request))
    except DecryptionError:
        return False
    return int(expires_at) > request.context.clock.now()


def reauth_cookie(request: PageRequest) -> str:
    """Return the cookie that marks this session as re-authenticated."""
    expires_at = request.context.clock.now() + REAUTH_LIFETIME_MS
    token = request.tools.encrypt(str(expires_at).encode(), _encryption_context(request))
    return f"{REAUTH_COOKIE}={token}; Max-Age={REAUTH_LIFETIME_MS // SECOND_MS}"


def _encryption_context(request: PageRequest) -> str:
    return f"proof/{request.user.session}"
