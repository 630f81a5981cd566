"""Sign-in with a password and an optional second factor, sign-out, and the common steps of all sign-in methods."""

from urllib.parse import urlencode

import msgspec
from msgspec.structs import replace

from heliograph.dashboard import totp
from heliograph.dashboard.page_request import Page, PageRequest, PageResponse, Redirect, session_cookie
from heliograph.dashboard.passkeys import PASSKEYS_AVAILABLE, relying_party
from heliograph.dashboard.passwords import ATTEMPTS_MAX, Busy, verify_password
from heliograph.domain.accounts.people import Link, Person
from heliograph.domain.audit.actor import Actor
from heliograph.domain.limits import MINUTE_MS
from heliograph.domain.mail.address import parse_address
from heliograph.domain.network.client_address import client_network
from heliograph.encryption import DecryptionError

# maximum wrong attempts per network, for all accounts together, because an office may share one address
NETWORK_ATTEMPTS_MAX = 100
# maximum wrong attempts per account, from a browser or network from which the user signed in before
KNOWN_CLIENT_ATTEMPTS_MAX = 20
DEVICE_COOKIE = "heliograph_device"  # identifies a browser from which the user signed in before
DEVICE_LIFETIME_S = 180 * 24 * 3600
BUSY = "Too many people are signing in right now. Try again in a moment."
WRONG_PASSWORD = "Wrong email address or password."
WRONG_CODE = "This code is wrong or was already used. Wait for the next one."
SECRET_CHANGED = (
    "Codes of your app cannot be checked any more: the service's secret was changed. "
    "Use a recovery code, or ask an operator to turn the code off."
)
PASSWORDS_DISABLED = "This instance doesn't use passwords."
TOO_MANY_ATTEMPTS = "Too many failed sign-ins. Try again in a few minutes."
SIGN_IN_EXPIRED = "This sign-in has expired. Sign in again."


async def show(request: PageRequest) -> PageResponse:
    if request.signed_in:
        return Redirect("/dashboard")
    form_page = sign_in_page(request)
    return replace(form_page, values=form_page.values | {"is_empty": not await request.store.people.count()})


async def sign_in(request: PageRequest) -> PageResponse:
    if not request.tools.password_sign_in:
        return sign_in_page(request, problem=PASSWORDS_DISABLED, status=403)
    if "ticket" in request.form:
        return await _check_second_factor(request)
    email = request.form.get("email", "").strip()
    address = parse_address(email)
    if address is None:
        return sign_in_page(request, email, WRONG_PASSWORD, status=403)
    person = await request.store.people.find(address.normal)
    attempt = await begin_attempt(request, address.normal, person)
    if not attempt.limiter_keys:
        return sign_in_page(request, email, attempt.limit_error, status=429)
    hashed, password = person.password if person else None, request.form.get("password", "")
    try:
        is_correct = await verify_password(hashed, password, is_known_client=attempt.is_known_client)
    except Busy:
        await request.store.attempt_limiter.remove_last_attempt(attempt.limiter_keys)
        return sign_in_page(request, email, BUSY, status=503)
    if not is_correct or person is None:
        return sign_in_page(
            request, email, attempt.limit_error or WRONG_PASSWORD, status=429 if attempt.limit_error else 403
        )
    await request.store.attempt_limiter.remove_last_attempt(attempt.limiter_keys)
    if person.totp:
        return sign_in_page(request, ticket=await request.store.people.create_ticket(Link(person.id, "ticket")))
    return await start_session(request, person, request.query.get("next", ""), audit_detail="with a password")


async def _check_second_factor(request: PageRequest) -> PageResponse:
    """Check the second factor. The form's ticket identifies the user, who has entered the correct password.

    A ticket allows one attempt, and is invalid after a change of the password. After a wrong code, the user gets a new
    ticket with the remaining lifetime.
    """
    ticket = await request.store.people.use_link(request.form["ticket"], "ticket")
    person = await request.store.people.get(ticket.person) if ticket else None
    if ticket is None or person is None or not person.totp:
        return sign_in_page(request, error=SIGN_IN_EXPIRED, status=403)
    if error := await code_error(request, person, request.form.get("code", "")):
        return sign_in_page(request, error=error, ticket=await request.store.people.create_ticket(ticket), status=403)
    return await start_session(
        request, person, request.query.get("next", ""), audit_detail="with a password and a code"
    )


def sign_in_page(
    request: PageRequest, email: str = "", error: str = "", *, ticket: str = "", problem: str = "", status: int = 200
) -> Page:
    """Show the sign-in form. `error` is about the typed values, `problem` about another sign-in method."""
    provider, next_page = request.tools.provider, request.query.get("next", "")
    values = {
        "email": email,
        "wrong": error,
        "problem": problem,
        "ticket": ticket,
        "passwords": request.tools.password_sign_in,
        "provider": provider.options.name if provider else "",
        "next": urlencode({"next": next_page}) if next_page else "",
        "is_out": "out" in request.query,
        "is_empty": False,
        "passkeys": request.tools.password_sign_in
        and PASSKEYS_AVAILABLE
        and relying_party(request.context.base_url) is not None,
    }
    return Page("sign_in.html", values, status)


# -- shared by all sign-in methods -------------------------------------------------------------------------


class SignInAttempt(msgspec.Struct, frozen=True):
    """A counted sign-in attempt, which is not allowed if `limiter_keys` is empty."""

    limiter_keys: tuple[str, ...]  # keys by which the attempt was counted
    limit_error: str = (
        ""  # shown instead of other errors, which would reveal whether the user signed in from here before
    )
    is_known_client: bool = False


async def begin_attempt(request: PageRequest, email: str, person: Person | None) -> SignInAttempt:
    """Count a sign-in attempt against the limits of the account and the network.

    If a limit is reached, a browser or network from which the user signed in before has a separate limit, so that an
    attacker elsewhere cannot lock the user out.
    """
    network, now = client_network(request.client_ip), request.context.clock.now()
    limits = {f"account {email}": ATTEMPTS_MAX, f"network {network}": NETWORK_ATTEMPTS_MAX}
    known_mark = (
        await request.store.sessions.find_familiar_device(person.id, _client_identifiers(request)) if person else None
    )
    wait = await request.store.attempt_limiter.record_attempt(limits, now)
    if not wait:
        return SignInAttempt(tuple(limits), is_known_client=known_mark is not None)
    minutes = -(-wait // MINUTE_MS)
    limit_error = f"Too many failed attempts. Try again in {minutes} minute{'s' if minutes > 1 else ''}."
    known_client_limits = {f"{known_mark} of {email}": KNOWN_CLIENT_ATTEMPTS_MAX}
    if known_mark is None or await request.store.attempt_limiter.record_attempt(known_client_limits, now):
        return SignInAttempt((), limit_error)
    return SignInAttempt(tuple(known_client_limits), limit_error, is_known_client=True)


def _client_identifiers(request: PageRequest, device: str = "") -> list[str]:
    """Return what identifies the client, most reliable first: device, then network."""
    device = device or request.cookies.get(DEVICE_COOKIE, "")
    return [*([f"device {device}"] if device else []), f"network {client_network(request.client_ip)}"]


async def code_error(request: PageRequest, person: Person, typed_code: str) -> str:
    """Return why the TOTP or recovery code is rejected; empty if it is valid. A valid code cannot be used again."""
    attempt = await begin_attempt(request, person.email, person)
    if not attempt.limiter_keys:
        return attempt.limit_error
    code = totp.normalize_code(typed_code)
    error, time_step = WRONG_CODE, None
    try:
        secret = request.tools.decrypt(person.totp or "", f"totp/{person.id}")
        time_step = totp.find_time_step(secret, code, request.context.clock.now())
    except DecryptionError:
        error = SECRET_CHANGED
    if time_step is None:
        is_valid = await request.store.people.use_recovery_code(person.id, code)
    else:
        is_valid = await request.store.people.use_totp_step(person.id, time_step)
    if is_valid:
        await request.store.attempt_limiter.remove_last_attempt(attempt.limiter_keys)
    return "" if is_valid else error


async def start_session(
    request: PageRequest,
    person: Person,
    next_page: str = "",
    notice: str = "",
    *,
    audit_detail: str = "",
    lifetime_ms: int | None = None,
    consumed_token: str = "",
) -> PageResponse:
    """Sign the user in.

    `audit_detail`: text for the audit log; empty if the action has an entry of its own. See `sessions.sign_in` for the
    other parameters.
    """
    user_agent = request.http.headers.get(b"user-agent", b"").decode("latin-1")
    device = request.cookies.get(DEVICE_COOKIE, "")
    if not (device.isascii() and device.isalnum() and len(device) == 64):
        device = request.context.clock.random_bytes(32).hex()
    actor = Actor(kind="person", id=person.id, address=request.client_ip)
    entry = (
        actor.audit_entry(request.context.clock.now(), "account.sign_in", person.email, audit_detail)
        if audit_detail
        else None
    )
    token = await request.store.sessions.sign_in(
        person,
        request.client_ip,
        user_agent,
        _client_identifiers(request, device),
        entry=entry,
        duration_ms=lifetime_ms,
        single_use_token=consumed_token,
    )
    if token is None:
        return sign_in_page(request, problem=SIGN_IN_EXPIRED, status=403)
    is_dashboard_path = next_page.startswith("/dashboard") and next_page.isascii() and next_page.isprintable()
    cookies = (session_cookie(token), f"{DEVICE_COOKIE}={device}; Max-Age={DEVICE_LIFETIME_S}")
    return Redirect(next_page if is_dashboard_path else "/dashboard", notice, cookies)


async def sign_out(request: PageRequest) -> PageResponse:
    await request.store.sessions.sign_out(request.user.person, request.user.session)
    sign_out_query = "?out" if request.tools.provider and request.user.ends_at else ""
    return Redirect(f"/dashboard/sign-in{sign_out_query}", "You have signed out.", (session_cookie(""),))
