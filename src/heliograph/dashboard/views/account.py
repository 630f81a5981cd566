"""A user's own account: name, password, two-factor code, passkeys and sessions."""

from heliograph.dashboard import totp
from heliograph.dashboard.page_request import Answer, Page, Redirect, Visit, errors_of
from heliograph.dashboard.passkeys import ARE_HERE, party_of
from heliograph.dashboard.passwords import complaint, hash_password
from heliograph.dashboard.views.reauth import must_prove, why_unproven
from heliograph.dashboard.views.sign_in import CLOSED, wrong_code
from heliograph.domain.accounts.people import Person
from heliograph.domain.refusals import InvalidRequest
from heliograph.encryption import CannotOpen
from heliograph.manage import people
from heliograph.runtime.threads import LOOKING
from heliograph.texts.dashboard_links import ACCOUNT

# Substring of the User-Agent → name of the browser. Browsers include each other's names: the first match counts.
BROWSERS = (
    *(("Edg", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("HeadlessChrome", "Chrome"), ("Chrome/", "Chrome")),
    *(("CriOS/", "Chrome"), ("Safari/", "Safari"), ("curl/", "curl")),
)
SYSTEMS = (
    *(("iPhone", "iPhone"), ("iPad", "iPad"), ("Android", "Android"), ("Windows", "Windows"), ("Mac OS", "macOS")),
    *(("CrOS", "ChromeOS"), ("Linux", "Linux")),
)


async def set_name(visit: Visit) -> Answer:
    person = visit.person
    try:
        await people.set_name(visit.store, visit.actor, person.person, person.email, visit.form.get("name", ""))
    except InvalidRequest as refusal:
        return await show(visit, errors_of(refusal))
    return Redirect(ACCOUNT, "Your name is changed.")


async def set_password(visit: Visit) -> Answer:
    if not visit.tools.passwords:
        raise InvalidRequest(CLOSED)
    person = await themselves(visit)
    if why := await why_unproven(visit, person, visit.form.get("old", "")):
        return await show(visit, {"old": why})
    new = visit.form.get("new", "")
    if wrong := complaint(new):
        return await show(visit, {"new": wrong})
    await people.set_password(visit.store, visit.actor, person, await hash_password(new), visit.person.session)
    return Redirect(ACCOUNT, "Your password is changed; other sessions are signed out.")


async def end_sessions(visit: Visit) -> Answer:
    who, only = visit.person, visit.form.get("id", "")
    await people.end_sessions(visit.store, visit.actor, who.person, who.email, kept=who.session, only=only)
    return Redirect(ACCOUNT, "Signed out there.")


async def show(visit: Visit, errors: dict[str, str] | None = None) -> Page:
    person = await themselves(visit)
    may_have_passkeys = visit.tools.passwords and party_of(visit.context.base_url)
    values = {
        "person": person,
        "name": visit.form.get("name", person.name),
        "sessions": await visit.store.sessions.of(person.id),
        "provider": visit.tools.provider.options.name if visit.tools.provider else "",
        "identities": await visit.store.people.identities(person.id),
        "passwords": visit.tools.passwords,
        "must_prove": must_prove(visit, person),
        "passkeys": await visit.store.passkeys.of(person.id) if may_have_passkeys and ARE_HERE else None,
        "lacks_passkeys": may_have_passkeys and not ARE_HERE,
        "passkey": visit.form.get("passkey", ""),
        "codes_left": await visit.store.people.count_recovery(person.id),
        "browser": browser_of,
        "errors": errors or {},
    }
    return Page("account.html", values, 400 if errors else 200)


def browser_of(agent: str) -> str:
    """Return browser and system of a User-Agent; an unknown User-Agent is returned unchanged."""
    browser = next((name for mark, name in BROWSERS if mark in agent), "")
    system = next((name for mark, name in SYSTEMS if mark in agent), "")
    return f"{browser} on {system}" if browser and system else browser or agent


async def themselves(visit: Visit) -> Person:
    person = await visit.store.people.get(visit.person.person)
    assert person, "a session ends with its person"
    return person


# -- two-factor code ---------------------------------------------------------------------------------------


async def show_totp(visit: Visit) -> Answer:
    """Show a new TOTP secret; it is kept only in the form until a code confirms it."""
    person = await themselves(visit)
    if person.totp or must_prove(visit, person):
        return Redirect(ACCOUNT)
    return await _totp_page(visit, person, visit.context.clock.entropy(totp.SECRET_BYTES))


async def confirm_totp(visit: Visit) -> Answer:
    """Enable TOTP after checking a code and the password, so that an unattended session cannot lock its user out."""
    person, sealed = await themselves(visit), visit.form.get("sealed", "")
    if person.totp or must_prove(visit, person):
        return Redirect(ACCOUNT)
    try:
        secret = visit.tools.unseal(sealed, f"totp/{person.id}")
    except CannotOpen:
        return Redirect(f"{ACCOUNT}/totp")
    step = totp.step_of(secret, totp.plain(visit.form.get("code", "")), visit.context.clock.now())
    if step is None:
        wrong = {"code": "This code is wrong or too old. Check the clock of your phone."}
        return await _totp_page(visit, person, secret, wrong)
    if why := await why_unproven(visit, person, visit.form.get("check", "")):
        return await _totp_page(visit, person, secret, {"check": why})
    codes = totp.recovery_codes(visit.context.clock.entropy(totp.RECOVERY_CODES * totp.RECOVERY_BYTES))
    await people.start_totp(visit.store, visit.actor, person.id, person.email, sealed, codes, step)
    return Page("recovery.html", {"codes": codes})


async def drop_totp(visit: Visit) -> Answer:
    person = await themselves(visit)
    if person.totp and (wrong := await wrong_code(visit, person, visit.form.get("code", ""))):
        return await show(visit, {"code": wrong})
    await people.end_totp(visit.store, visit.actor, person)
    return Redirect(ACCOUNT, "Two-factor authentication is off.")


async def _totp_page(visit: Visit, person: Person, secret: bytes, errors: dict[str, str] | None = None) -> Page:
    text = totp.base32(secret)
    values = {
        "person": person,
        "sealed": visit.tools.seal(secret, f"totp/{person.id}"),
        "image": await LOOKING.run(totp.qr_code, secret, person.email),
        "secret": " ".join(text[at : at + 4] for at in range(0, len(text), 4)),
        "errors": errors or {},
    }
    return Page("totp.html", values, 400 if errors else 200)
