"""Sign-in with password and optional second factor, and sign-out; also the steps shared by all sign-in methods."""

from urllib.parse import urlencode

import msgspec
from msgspec.structs import replace

from heliograph.dashboard import totp
from heliograph.dashboard.page_request import Answer, Page, Redirect, Visit, session_cookie
from heliograph.dashboard.passkeys import ARE_HERE, party_of
from heliograph.dashboard.passwords import TRIES_MAX, Busy, is_right
from heliograph.domain.accounts.people import Link, Person
from heliograph.domain.audit.actor import Actor
from heliograph.domain.limits import MINUTE_MS
from heliograph.domain.mail.address import parse_address
from heliograph.domain.network.client_address import network_of
from heliograph.encryption import CannotOpen

NETWORK_TRIES_MAX = 100  # wrong attempts per network, for any account: a whole office may share an address
FAMILIAR_TRIES_MAX = 20  # wrong attempts per account from a browser or network that it was signed in from before
DEVICE = "heliograph_device"  # cookie that identifies a known browser
DEVICE_S = 180 * 24 * 3600
BUSY = "Very many people sign in just now. Try again in a moment."
WRONG = "This address and password do not belong together."
WRONG_CODE = "This code is wrong, or was used before. Wait for the next one."
LOST_CODE = (
    "Codes of your app cannot be checked any more: the service's secret was changed. "
    "Use a recovery code, or ask an operator to turn the code off."
)
CLOSED = "Passwords are not in use here."
TOO_MANY = "Too many sign-ins that did not work. Try again in some minutes."
ENDED = "This sign-in has ended. Sign in again."


async def show(visit: Visit) -> Answer:
    if visit.who:
        return Redirect("/dashboard")
    shown = page(visit)
    return replace(shown, values=shown.values | {"is_empty": not await visit.store.people.count()})


async def enter(visit: Visit) -> Answer:
    if not visit.tools.passwords:
        return page(visit, problem=CLOSED, status=403)
    if "ticket" in visit.form:
        return await _enter_code(visit)
    email = visit.form.get("email", "").strip()
    address = parse_address(email)
    if address is None:
        return page(visit, email, WRONG, status=403)
    person = await visit.store.people.find(address.normal)
    attempt = await begin_try(visit, address.normal, person)
    if not attempt.names:
        return page(visit, email, attempt.instead, status=429)
    hashed, password = person.password if person else None, visit.form.get("password", "")
    try:
        good = await is_right(hashed, password, is_familiar=attempt.is_familiar)
    except Busy:
        await visit.store.tries.forgive(attempt.names)
        return page(visit, email, BUSY, status=503)
    if not good or person is None:
        return page(visit, email, attempt.instead or WRONG, status=429 if attempt.instead else 403)
    await visit.store.tries.forgive(attempt.names)
    if person.totp:
        return page(visit, ticket=await visit.store.people.make_ticket(Link(person.id, "ticket")))
    return await let_in(visit, person, visit.query.get("next", ""), how="with a password")


async def _enter_code(visit: Visit) -> Answer:
    """Check the second factor, using a ticket that identifies the user whose password was correct.

    A ticket is valid for one attempt and is revoked when the password changes. A wrong code returns a new ticket with
    the remaining lifetime.
    """
    ticket = await visit.store.people.use_link(visit.form["ticket"], "ticket")
    person = await visit.store.people.get(ticket.person) if ticket else None
    if ticket is None or person is None or not person.totp:
        return page(visit, wrong=ENDED, status=403)
    wrong = await wrong_code(visit, person, visit.form.get("code", ""))
    if wrong:
        return page(visit, wrong=wrong, ticket=await visit.store.people.make_ticket(ticket), status=403)
    return await let_in(visit, person, visit.query.get("next", ""), how="with a password and a code")


def page(
    visit: Visit, email: str = "", wrong: str = "", *, ticket: str = "", problem: str = "", status: int = 200
) -> Page:
    """Show the sign-in form. `wrong` is the error of the typed values, `problem` that of another sign-in method."""
    provider, next_page = visit.tools.provider, visit.query.get("next", "")
    values = {
        "email": email,
        "wrong": wrong,
        "problem": problem,
        "ticket": ticket,
        "passwords": visit.tools.passwords,
        "provider": provider.options.name if provider else "",
        "next": urlencode({"next": next_page}) if next_page else "",
        "is_out": "out" in visit.query,
        "is_empty": False,
        "passkeys": visit.tools.passwords and ARE_HERE and party_of(visit.context.base_url) is not None,
    }
    return Page("sign_in.html", values, status)


# -- shared by all sign-in methods -------------------------------------------------------------------------


class Try(msgspec.Struct, frozen=True):
    names: tuple[str, ...]  # limiter keys under which the attempt is counted; empty if no attempt is allowed now
    instead: str = ""  # error shown instead of the reason: must not reveal which clients are known
    is_familiar: bool = False


async def begin_try(visit: Visit, email: str, person: Person | None) -> Try:
    """Count a sign-in attempt against the limits of the account and of the network.

    If a limit is reached, a browser or network from which the user signed in before has a separate limit, so that an
    attacker elsewhere cannot lock the user out.
    """
    network, now = network_of(visit.address), visit.context.clock.now()
    limits = {f"account {email}": TRIES_MAX, f"network {network}": NETWORK_TRIES_MAX}
    mark = await visit.store.sessions.familiar(person.id, _marks(visit)) if person else None
    wait = await visit.store.tries.begin(limits, now)
    if not wait:
        return Try(tuple(limits), is_familiar=mark is not None)
    minutes = -(-wait // MINUTE_MS)
    instead = f"Too many wrong tries. Try again in {minutes} minute{'s' if minutes > 1 else ''}."
    own = {f"{mark} of {email}": FAMILIAR_TRIES_MAX}
    if mark is None or await visit.store.tries.begin(own, now):
        return Try((), instead)
    return Try(tuple(own), instead, is_familiar=True)


def _marks(visit: Visit, device: str = "") -> list[str]:
    """Return the marks by which a known client is recognized, most reliable first: device, then network."""
    device = device or visit.cookies.get(DEVICE, "")
    return [*([f"device {device}"] if device else []), f"network {network_of(visit.address)}"]


async def wrong_code(visit: Visit, person: Person, typed: str) -> str:
    """Return why the TOTP or recovery code is rejected; empty if it is valid, in which case it is used up."""
    attempt = await begin_try(visit, person.email, person)
    if not attempt.names:
        return attempt.instead
    code = totp.plain(typed)
    wrong, step = WRONG_CODE, None
    try:
        secret = visit.tools.unseal(person.totp or "", f"totp/{person.id}")
        step = totp.step_of(secret, code, visit.context.clock.now())
    except CannotOpen:
        wrong = LOST_CODE
    if step is None:
        good = await visit.store.people.use_recovery(person.id, code)
    else:
        good = await visit.store.people.use_totp_step(person.id, step)
    if good:
        await visit.store.tries.forgive(attempt.names)
    return "" if good else wrong


async def let_in(
    visit: Visit,
    person: Person,
    next_page: str = "",
    notice: str = "",
    *,
    how: str = "",
    lasts_ms: int | None = None,
    spends: str = "",
) -> Answer:
    """Sign the user in. `how` is the text for the audit log; empty if the action just done has its own entry.

    See `sessions.sign_in` for the other parameters.
    """
    agent = visit.request.headers.get(b"user-agent", b"").decode("latin-1")
    device = visit.cookies.get(DEVICE, "")
    if not (device.isascii() and device.isalnum() and len(device) == 64):
        device = visit.context.clock.entropy(32).hex()
    actor = Actor(kind="person", id=person.id, address=visit.address)
    entry = actor.did(visit.context.clock.now(), "account.sign_in", person.email, how) if how else None
    token = await visit.store.sessions.sign_in(
        person, visit.address, agent, _marks(visit, device), entry=entry, lasts_ms=lasts_ms, spends=spends
    )
    if token is None:
        return page(visit, problem=ENDED, status=403)
    is_ours = next_page.startswith("/dashboard") and next_page.isascii() and next_page.isprintable()
    cookies = (session_cookie(token), f"{DEVICE}={device}; Max-Age={DEVICE_S}")
    return Redirect(next_page if is_ours else "/dashboard", notice, cookies)


async def leave(visit: Visit) -> Answer:
    await visit.store.sessions.sign_out(visit.person.person, visit.person.session)
    out = "?out" if visit.tools.provider and visit.person.ends_at else ""
    return Redirect(f"/dashboard/sign-in{out}", "You are signed out.", (session_cookie(""),))
