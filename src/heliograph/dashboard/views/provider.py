"""Signing in with an identity provider: there, and back again.

What binds the answer to this browser is in a sealed cookie until it comes; it is good once.
"""

import hmac

import msgspec
import structlog

from heliograph.dashboard.oidc import NotBelieved, Provider, ProviderAway, Visitor, base64url
from heliograph.dashboard.views.sign_in import ENDED, NETWORK_TRIES_MAX, TOO_MANY, let_in, page
from heliograph.dashboard.visit import Answer, Gone, Page, Redirect, Visit
from heliograph.manage import people
from heliograph.rules.client_address import network_of
from heliograph.rules.groups import roles_by_groups
from heliograph.rules.limits import HOUR_MS, MINUTE_MS, SECOND_MS
from heliograph.sealing import CannotOpen

COOKIE = "heliograph_provider"
WAIT_MS = 10 * MINUTE_MS  # how long somebody may take there
LASTS_MS = 12 * HOUR_MS  # a session, however much it is used: who is let in and with which groups is asked again
AWAY = "{} does not answer just now. Try again in a moment."
REFUSED = "{} did not let you in."
NOT_BELIEVED = "This sign-in with {} did not work. Try again."
STRANGERS = {
    "unverified": "{} does not say that your address is verified, so we cannot tell who you are.",
    "unknown": "You have no role here yet. Ask an operator for one.",
    "taken": "The account with your address belongs to somebody else at {}. Ask an operator to disconnect it.",
}

log = structlog.get_logger()


class Journey(msgspec.Struct, frozen=True):
    """Of a browser that is at the provider."""

    state: str
    nonce: str
    verifier: str
    next: str
    until: int


async def begin(visit: Visit) -> Answer:
    provider = _provider(visit)
    if visit.who:
        return Redirect("/dashboard")
    clock = visit.context.clock
    state, nonce, verifier = (base64url(clock.entropy(32)) for _ in range(3))
    journey = Journey(state, nonce, verifier, visit.query.get("next", "")[:1000], clock.now() + WAIT_MS)
    try:
        place = await provider.address(state, nonce, verifier)
    except ProviderAway as error:
        return _away(visit, provider, error)
    sealed = visit.tools.seal(msgspec.json.encode(journey), COOKIE)
    return Redirect(place, cookies=(f"{COOKIE}={sealed}; Max-Age={WAIT_MS // SECOND_MS}",))


async def finish(visit: Visit) -> Answer:
    provider = _provider(visit)
    if visit.who:
        return Redirect("/dashboard")
    journey = _journey(visit)
    if journey is None or not hmac.compare_digest(visit.query.get("state", "").encode(), journey.state.encode()):
        return page(visit, problem=ENDED, status=403)
    network = f"network {network_of(visit.address)}"
    if await visit.store.tries.begin({network: NETWORK_TRIES_MAX}, visit.context.clock.now()):
        return page(visit, problem=TOO_MANY, status=429)
    if "error" in visit.query:
        return page(visit, problem=REFUSED.format(provider.options.name), status=403)
    try:
        visitor = await provider.receive(visit.query, journey.nonce, journey.verifier)
    except ProviderAway as error:
        return _away(visit, provider, error)
    except NotBelieved as error:
        log.warning("sign-in with the provider refused", request_id=visit.request.id, error=str(error))
        return page(visit, problem=NOT_BELIEVED.format(provider.options.name), status=403)
    await visit.store.tries.forgive([network])
    return await _admit(visit, provider, visitor, journey)


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
    """Out of the provider as well, for who asks for it: others on this machine could come back without a password."""
    provider = _provider(visit)
    try:
        place = await provider.leaving(f"{visit.context.base_url}/dashboard/sign-in")
    except ProviderAway as error:
        return _away(visit, provider, error)
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


def _away(visit: Visit, provider: Provider, error: ProviderAway) -> Page:
    log.error("the identity provider is away", request_id=visit.request.id, error=str(error))
    return page(visit, problem=AWAY.format(provider.options.name), status=503)
