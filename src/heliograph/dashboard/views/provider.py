"""Sign-in with the identity provider, also for re-authentication of a signed-in user.

The state that binds the provider's response to this browser is kept in an encrypted cookie; it can be used once.
"""

import hmac

import msgspec
import structlog

from heliograph.dashboard.oidc import LEEWAY_S, NotBelieved, Provider, ProviderAway, Visitor, base64url
from heliograph.dashboard.page_request import Answer, Gone, Page, Redirect, Visit
from heliograph.dashboard.views import account, reauth
from heliograph.dashboard.views.sign_in import ENDED, NETWORK_TRIES_MAX, TOO_MANY, let_in, page
from heliograph.domain.accounts.idp_groups import roles_by_groups
from heliograph.domain.limits import HOUR_MS, MINUTE_MS, SECOND_MS
from heliograph.domain.network.client_address import network_of
from heliograph.encryption import CannotOpen
from heliograph.manage import people
from heliograph.texts.dashboard_links import ACCOUNT

COOKIE = "heliograph_provider"
WAIT_MS = 10 * MINUTE_MS  # time a user may spend at the provider
# session lifetime regardless of activity: access and groups are then checked again at the provider
LASTS_MS = 12 * HOUR_MS
AWAY = "{} does not answer just now. Try again in a moment."
REFUSED = "{} did not let you in."
NOT_BELIEVED = "This sign-in with {} did not work. Try again."
STRANGERS = {
    "unverified": "{} does not say that your address is verified, so we cannot tell who you are. "
    "Where all addresses there are, an operator sets HELIOGRAPH_OIDC_EMAIL_TRUSTED=on.",
    "unknown": "You have no role here yet. Ask an operator for one.",
    "taken": "The account with your address belongs to somebody else at {}. Ask an operator to disconnect it.",
}
SOMEBODY_ELSE = "At {} that was not your account."
NOT_ANEW = "{} does not say that you signed in there just now. Ask an operator for a link to choose a password."
PROVEN = "Confirmed. For ten minutes you can set a password and add passkeys."

log = structlog.get_logger()


class Journey(msgspec.Struct, frozen=True):
    """Pending authorization request of a browser, stored in the cookie."""

    state: str
    nonce: str
    verifier: str
    next: str
    until: int
    session: str = ""  # session of a signed-in user who re-authenticates; otherwise empty


async def begin(visit: Visit) -> Answer:
    return Redirect("/dashboard") if visit.who else await _depart(visit)


async def begin_anew(visit: Visit) -> Answer:
    return await _depart(visit, visit.person.session)


async def _depart(visit: Visit, session: str = "") -> Answer:
    provider, clock = _provider(visit), visit.context.clock
    state, nonce, verifier = (base64url(clock.entropy(32)) for _ in range(3))
    journey = Journey(state, nonce, verifier, visit.query.get("next", "")[:1000], clock.now() + WAIT_MS, session)
    try:
        place = await provider.address(state, nonce, verifier, anew=bool(session))
    except ProviderAway as error:
        return await _away(visit, provider, error)
    sealed = visit.tools.seal(msgspec.json.encode(journey), COOKIE)
    return Redirect(place, cookies=(f"{COOKIE}={sealed}; Max-Age={WAIT_MS // SECOND_MS}",))


async def finish(visit: Visit) -> Answer:
    provider, journey = _provider(visit), _journey(visit)
    if visit.who and (journey is None or journey.session != visit.who.session):
        return Redirect("/dashboard")
    if journey is None or not hmac.compare_digest(visit.query.get("state", "").encode(), journey.state.encode()):
        return await _stay(visit, ENDED)
    if journey.session and not visit.who:
        return await _stay(visit, ENDED)
    network = f"network {network_of(visit.address)}"
    if await visit.store.tries.begin({network: NETWORK_TRIES_MAX}, visit.context.clock.now()):
        return await _stay(visit, TOO_MANY, 429)
    if "error" in visit.query:
        return await _stay(visit, REFUSED.format(provider.options.name))
    try:
        visitor = await provider.receive(visit.query, journey.nonce, journey.verifier)
    except ProviderAway as error:
        return await _away(visit, provider, error)
    except NotBelieved as error:
        log.warning("sign-in with the provider refused", request_id=visit.request.id, error=str(error))
        return await _stay(visit, NOT_BELIEVED.format(provider.options.name))
    await visit.store.tries.forgive([network])
    return await (_prove if visit.who else _admit)(visit, provider, visitor, journey)


async def _prove(visit: Visit, provider: Provider, visitor: Visitor, journey: Journey) -> Answer:
    """Confirm re-authentication by `auth_time`: a user could remove `prompt=login` from the URL."""
    known = await visit.store.people.identities(visit.person.person)
    if (visitor.identity.issuer, visitor.identity.subject) not in [(one.issuer, one.subject) for one in known]:
        return await _stay(visit, SOMEBODY_ELSE.format(provider.options.name))
    if visitor.entered_at < journey.until - WAIT_MS - LEEWAY_S * SECOND_MS:
        return await _stay(visit, NOT_ANEW.format(provider.options.name))
    return Redirect(ACCOUNT, PROVEN, (reauth.cookie(visit), f"{COOKIE}=; Max-Age=0"))


async def _admit(visit: Visit, provider: Provider, visitor: Visitor, journey: Journey) -> Answer:
    name, roles = provider.options.name, roles_by_groups(visitor.groups, provider.options.roles)
    person = await people.admit(visit.store, visit.address, visitor.identity, roles, name)
    if isinstance(person, str):
        log.warning("sign-in with the provider refused", request_id=visit.request.id, error=f"the person is {person}")
        return page(visit, problem=STRANGERS[person].format(name), status=403)
    entered = await let_in(
        visit, person, journey.next, how=f"with {name}", lasts_ms=LASTS_MS, spends=f"provider {journey.state}"
    )
    if isinstance(entered, Redirect):
        return msgspec.structs.replace(entered, cookies=(*entered.cookies, f"{COOKIE}=; Max-Age=0"))
    return entered


async def leave(visit: Visit) -> Answer:
    """Also sign out at the provider, if the user asks: otherwise the next user of the browser could sign in again."""
    provider = _provider(visit)
    try:
        place = await provider.leaving(f"{visit.context.base_url}/dashboard/sign-in")
    except ProviderAway as error:
        return await _away(visit, provider, error)
    return Redirect(place) if place else Redirect("/dashboard/sign-in", f"Sign out at {provider.options.name} itself.")


def _provider(visit: Visit) -> Provider:
    if visit.tools.provider is None:
        raise Gone
    return visit.tools.provider


def _journey(visit: Visit) -> Journey | None:
    try:
        opened = visit.tools.unseal(visit.cookies.get(COOKIE, ""), COOKIE)
    except CannotOpen:
        return None
    journey = msgspec.json.decode(opened, type=Journey)
    return journey if journey.until > visit.context.clock.now() else None


async def _away(visit: Visit, provider: Provider, error: ProviderAway) -> Page:
    log.error("the identity provider is away", request_id=visit.request.id, error=str(error))
    return await _stay(visit, AWAY.format(provider.options.name), 503)


async def _stay(visit: Visit, problem: str, status: int = 403) -> Page:
    """Show the error on the page that the user came from: the account, or the sign-in page."""
    if visit.who:
        return msgspec.structs.replace(await account.show(visit, {"anew": problem}), status=status)
    return page(visit, problem=problem, status=status)
