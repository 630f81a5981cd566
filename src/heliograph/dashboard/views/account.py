"""A user's own account: name, password, two-factor code, passkeys and sessions."""

from heliograph.dashboard import totp
from heliograph.dashboard.page_request import Page, PageRequest, PageResponse, Redirect, field_errors
from heliograph.dashboard.passkeys import PASSKEYS_AVAILABLE, relying_party
from heliograph.dashboard.passwords import find_password_problem, hash_password
from heliograph.dashboard.views.reauth import must_reauthenticate, reauthentication_error
from heliograph.dashboard.views.sign_in import PASSWORDS_DISABLED, code_error
from heliograph.domain.accounts.people import Person
from heliograph.domain.refusals import InvalidRequest
from heliograph.encryption import DecryptionError
from heliograph.manage import people
from heliograph.runtime.threads import READ_POOL
from heliograph.texts.dashboard_links import ACCOUNT

# part of the User-Agent → name of the browser; the first match counts, because browsers contain other names
BROWSER_BY_TOKEN = (
    *(("Edg", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("HeadlessChrome", "Chrome"), ("Chrome/", "Chrome")),
    *(("CriOS/", "Chrome"), ("Safari/", "Safari"), ("curl/", "curl")),
)
SYSTEM_BY_TOKEN = (
    *(("iPhone", "iPhone"), ("iPad", "iPad"), ("Android", "Android"), ("Windows", "Windows"), ("Mac OS", "macOS")),
    *(("CrOS", "ChromeOS"), ("Linux", "Linux")),
)


async def set_name(request: PageRequest) -> PageResponse:
    person = request.user
    try:
        await people.set_name(request.store, request.actor, person.person, person.email, request.form.get("name", ""))
    except InvalidRequest as refusal:
        return await show(request, field_errors(refusal))
    return Redirect(ACCOUNT, "Name saved.")


async def set_password(request: PageRequest) -> PageResponse:
    if not request.tools.password_sign_in:
        raise InvalidRequest(PASSWORDS_DISABLED)
    person = await load_user(request)
    if reauth_error := await reauthentication_error(request, person, request.form.get("old", "")):
        return await show(request, {"old": reauth_error})
    new = request.form.get("new", "")
    if password_problem := find_password_problem(new):
        return await show(request, {"new": password_problem})
    await people.set_password(request.store, request.actor, person, await hash_password(new), request.user.session)
    return Redirect(ACCOUNT, "Password changed. Your other sessions were signed out.")


async def end_sessions(request: PageRequest) -> PageResponse:
    user, session_id = request.user, request.form.get("id", "")
    await people.end_sessions(request.store, request.actor, user.person, user.email, kept=user.session, only=session_id)
    return Redirect(ACCOUNT, "Session signed out.")


async def show(request: PageRequest, errors: dict[str, str] | None = None) -> Page:
    person = await load_user(request)
    passkeys_supported = request.tools.password_sign_in and relying_party(request.context.base_url)
    values = {
        "person": person,
        "name": request.form.get("name", person.name),
        "sessions": await request.store.sessions.list_sessions(person.id),
        "provider": request.tools.provider.options.name if request.tools.provider else "",
        "identities": await request.store.people.list_identities(person.id),
        "passwords": request.tools.password_sign_in,
        "must_reauthenticate": must_reauthenticate(request, person),
        "passkeys": await request.store.passkeys.list_all(person.id)
        if passkeys_supported and PASSKEYS_AVAILABLE
        else None,
        "lacks_passkeys": passkeys_supported and not PASSKEYS_AVAILABLE,
        "passkey": request.form.get("passkey", ""),
        "codes_left": await request.store.people.count_recovery_codes(person.id),
        "browser": describe_browser,
    }
    return Page.form("account.html", values, errors)


def describe_browser(user_agent: str) -> str:
    """Return browser and operating system of a User-Agent; an unknown User-Agent is returned unchanged."""
    browser = next((name for token, name in BROWSER_BY_TOKEN if token in user_agent), "")
    operating_system = next((name for token, name in SYSTEM_BY_TOKEN if token in user_agent), "")
    return f"{browser} on {operating_system}" if browser and operating_system else browser or user_agent


async def load_user(request: PageRequest) -> Person:
    person = await request.store.people.get(request.user.person)
    assert person, "a session is deleted with its user"
    return person


# -- two-factor code ---------------------------------------------------------------------------------------


async def show_totp(request: PageRequest) -> PageResponse:
    """Show a new TOTP secret, which is only in the form until a code confirms it."""
    person = await load_user(request)
    if person.totp or must_reauthenticate(request, person):
        return Redirect(ACCOUNT)
    return await _totp_page(request, person, request.context.clock.random_bytes(totp.SECRET_BYTES))


async def confirm_totp(request: PageRequest) -> PageResponse:
    """Enable TOTP after checking a code and the password: others at an open session could lock the user out."""
    person, encrypted_secret = await load_user(request), request.form.get("sealed", "")
    if person.totp or must_reauthenticate(request, person):
        return Redirect(ACCOUNT)
    try:
        secret = request.tools.decrypt(encrypted_secret, f"totp/{person.id}")
    except DecryptionError:
        return Redirect(f"{ACCOUNT}/totp")
    step = totp.find_time_step(secret, totp.normalize_code(request.form.get("code", "")), request.context.clock.now())
    if step is None:
        errors = {"code": "This code is wrong or expired. Check that your phone's clock is correct."}
        return await _totp_page(request, person, secret, errors)
    if problem := await reauthentication_error(request, person, request.form.get("check", "")):
        return await _totp_page(request, person, secret, {"check": problem})
    codes = totp.recovery_codes(request.context.clock.random_bytes(totp.RECOVERY_CODE_COUNT * totp.RECOVERY_CODE_BYTES))
    await people.enable_totp(request.store, request.actor, person.id, person.email, encrypted_secret, codes, step)
    return Page("recovery.html", {"codes": codes})


async def disable_totp(request: PageRequest) -> PageResponse:
    person = await load_user(request)
    if person.totp and (problem := await code_error(request, person, request.form.get("code", ""))):
        return await show(request, {"code": problem})
    await people.disable_totp(request.store, request.actor, person)
    return Redirect(ACCOUNT, "Two-factor authentication is off.")


async def _totp_page(request: PageRequest, person: Person, secret: bytes, errors: dict[str, str] | None = None) -> Page:
    text = totp.base32(secret)
    values = {
        "person": person,
        "sealed": request.tools.encrypt(secret, f"totp/{person.id}"),
        "image": await READ_POOL.run(totp.qr_code, secret, person.email),
        "uri": totp.setup_uri(secret, person.email),
        "secret": " ".join(text[offset : offset + 4] for offset in range(0, len(text), 4)),
    }
    return Page.form("totp.html", values, errors)
