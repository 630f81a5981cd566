"""Sign-in with the identity provider, and re-authentication of signed-in users.

An encrypted cookie binds the provider's response to this browser; it can be used once.
"""

import hmac

import msgspec
import structlog

from heliograph.dashboard.oidc import (
    LEEWAY_S,
    InvalidProviderResponse,
    Provider,
    ProviderUnavailable,
    ProviderUser,
    encode_base64url,
)
from heliograph.dashboard.page_request import Page, PageNotFound, PageRequest, PageResponse, Redirect
from heliograph.dashboard.views import account, reauth
from heliograph.dashboard.views.sign_in import (
    NETWORK_ATTEMPTS_MAX,
    SIGN_IN_EXPIRED,
    TOO_MANY_ATTEMPTS,
    sign_in_page,
    start_session,
)
from heliograph.domain.accounts.idp_groups import roles_for_groups
from heliograph.domain.limits import HOUR_MS, MINUTE_MS, SECOND_MS
from heliograph.domain.network.client_address import client_network
from heliograph.encryption import DecryptionError
from heliograph.manage import people
from heliograph.texts.dashboard_links import ACCOUNT

AUTHORIZATION_COOKIE = "heliograph_provider"
AUTHORIZATION_LIFETIME_MS = 10 * MINUTE_MS  # how long a user may take at the provider
# maximum session lifetime: afterwards, the provider checks access and groups again
SESSION_LIFETIME_MS = 12 * HOUR_MS
PROVIDER_UNAVAILABLE = "{} is not responding. Try again in a moment."
PROVIDER_REFUSED = "{} denied the sign-in."
SIGN_IN_FAILED = "Signing in with {} failed. Try again."
REJECTION_TEXTS = {
    "unverified": "{} doesn't confirm that your email address is verified, so we can't sign you in. "
    "If all its addresses are verified, an operator can set HELIOGRAPH_OIDC_EMAIL_TRUSTED=on.",
    "unknown": "You have no role here yet. Ask an operator for one.",
    "taken": "Your Heliograph account is connected to a different {} account. Ask an operator to disconnect it.",
}
OTHER_ACCOUNT = "You signed in to a different {} account."
NOT_REAUTHENTICATED = "{} doesn't confirm that you just signed in. Ask an operator for a link to set a password."
REAUTHENTICATED = "Confirmed. You can set a password and add passkeys for the next ten minutes."

log = structlog.get_logger()


class AuthorizationRequest(msgspec.Struct, frozen=True):
    """A browser's pending authorization request, stored in the cookie."""

    state: str
    nonce: str
    verifier: str
    next: str
    until: int
    session: str = ""  # session of the user who re-authenticates; empty for a sign-in


async def begin(request: PageRequest) -> PageResponse:
    return Redirect("/dashboard") if request.signed_in else await _redirect_to_provider(request)


async def begin_reauthentication(request: PageRequest) -> PageResponse:
    return await _redirect_to_provider(request, request.user.session)


async def _redirect_to_provider(request: PageRequest, session: str = "") -> PageResponse:
    provider, clock = _require_provider(request), request.context.clock
    state, nonce, verifier = (encode_base64url(clock.random_bytes(32)) for _ in range(3))
    authorization = AuthorizationRequest(
        state, nonce, verifier, request.query.get("next", "")[:1000], clock.now() + AUTHORIZATION_LIFETIME_MS, session
    )
    try:
        url = await provider.authorization_url(state, nonce, verifier, reauthenticate=bool(session))
    except ProviderUnavailable as error:
        return await _unavailable_page(request, provider, error)
    encrypted = request.tools.encrypt(msgspec.json.encode(authorization), AUTHORIZATION_COOKIE)
    return Redirect(
        url, cookies=(f"{AUTHORIZATION_COOKIE}={encrypted}; Max-Age={AUTHORIZATION_LIFETIME_MS // SECOND_MS}",)
    )


async def handle_callback(request: PageRequest) -> PageResponse:
    provider, authorization = _require_provider(request), _read_authorization(request)
    if request.signed_in and (authorization is None or authorization.session != request.signed_in.session):
        return Redirect("/dashboard")
    if authorization is None or not hmac.compare_digest(
        request.query.get("state", "").encode(), authorization.state.encode()
    ):
        return await _error_page(request, SIGN_IN_EXPIRED)
    if authorization.session and not request.signed_in:
        return await _error_page(request, SIGN_IN_EXPIRED)
    network = f"network {client_network(request.client_ip)}"
    if await request.store.attempt_limiter.record_attempt({network: NETWORK_ATTEMPTS_MAX}, request.context.clock.now()):
        return await _error_page(request, TOO_MANY_ATTEMPTS, 429)
    if "error" in request.query:
        return await _error_page(request, PROVIDER_REFUSED.format(provider.options.name))
    try:
        provider_user = await provider.authenticate(request.query, authorization.nonce, authorization.verifier)
    except ProviderUnavailable as error:
        return await _unavailable_page(request, provider, error)
    except InvalidProviderResponse as error:
        log.warning("identity provider sign-in rejected", request_id=request.http.id, error=str(error))
        return await _error_page(request, SIGN_IN_FAILED.format(provider.options.name))
    await request.store.attempt_limiter.remove_last_attempt([network])
    return await (_confirm_reauthentication if request.signed_in else _sign_in_user)(
        request, provider, provider_user, authorization
    )


async def _confirm_reauthentication(
    request: PageRequest, provider: Provider, provider_user: ProviderUser, authorization: AuthorizationRequest
) -> PageResponse:
    """Confirm re-authentication by `auth_time`, because users could remove `prompt=login` from the URL."""
    identities = await request.store.people.list_identities(request.user.person)
    if (provider_user.identity.issuer, provider_user.identity.subject) not in [
        (identity.issuer, identity.subject) for identity in identities
    ]:
        return await _error_page(request, OTHER_ACCOUNT.format(provider.options.name))
    if provider_user.authenticated_at < authorization.until - AUTHORIZATION_LIFETIME_MS - LEEWAY_S * SECOND_MS:
        return await _error_page(request, NOT_REAUTHENTICATED.format(provider.options.name))
    return Redirect(ACCOUNT, REAUTHENTICATED, (reauth.reauth_cookie(request), f"{AUTHORIZATION_COOKIE}=; Max-Age=0"))


async def _sign_in_user(
    request: PageRequest, provider: Provider, provider_user: ProviderUser, authorization: AuthorizationRequest
) -> PageResponse:
    name, roles = provider.options.name, roles_for_groups(provider_user.groups, provider.options.roles)
    person = await people.sign_in_by_provider(request.store, request.client_ip, provider_user.identity, roles, name)
    if isinstance(person, str):
        log.warning("identity provider sign-in rejected", request_id=request.http.id, error=f"user is {person}")
        return sign_in_page(request, problem=REJECTION_TEXTS[person].format(name), status=403)
    page_response = await start_session(
        request,
        person,
        authorization.next,
        audit_detail=f"with {name}",
        lifetime_ms=SESSION_LIFETIME_MS,
        consumed_token=f"provider {authorization.state}",
    )
    if isinstance(page_response, Redirect):
        return msgspec.structs.replace(
            page_response, cookies=(*page_response.cookies, f"{AUTHORIZATION_COOKIE}=; Max-Age=0")
        )
    return page_response


async def sign_out(request: PageRequest) -> PageResponse:
    """End the session at the provider, because the browser's next user could otherwise sign in as this user."""
    provider = _require_provider(request)
    try:
        logout_url = await provider.logout_url(f"{request.context.base_url}/dashboard/sign-in")
    except ProviderUnavailable as error:
        return await _unavailable_page(request, provider, error)
    if not logout_url:
        return Redirect("/dashboard/sign-in", f"Sign out at {provider.options.name} too.")
    return Redirect(logout_url)


def _require_provider(request: PageRequest) -> Provider:
    if request.tools.provider is None:
        raise PageNotFound
    return request.tools.provider


def _read_authorization(request: PageRequest) -> AuthorizationRequest | None:
    try:
        decrypted = request.tools.decrypt(request.cookies.get(AUTHORIZATION_COOKIE, ""), AUTHORIZATION_COOKIE)
    except DecryptionError:
        return None
    authorization = msgspec.json.decode(decrypted, type=AuthorizationRequest)
    return authorization if authorization.until > request.context.clock.now() else None


async def _unavailable_page(request: PageRequest, provider: Provider, error: ProviderUnavailable) -> Page:
    log.error("identity provider unavailable", request_id=request.http.id, error=str(error))
    return await _error_page(request, PROVIDER_UNAVAILABLE.format(provider.options.name), 503)


async def _error_page(request: PageRequest, problem: str, status: int = 403) -> Page:
    """Show the error on the page from which the user came: the account or the sign-in page."""
    if request.signed_in:
        return msgspec.structs.replace(await account.show(request, {"reauth": problem}), status=status)
    return sign_in_page(request, problem=problem, status=status)
