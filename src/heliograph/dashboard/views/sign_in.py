"""Signing in and out: a password and, for those who turned it on, a code."""

import msgspec

from heliograph.dashboard import totp
from heliograph.dashboard.passwords import TRIES_MAX, is_right
from heliograph.dashboard.visit import Answer, Page, Redirect, Visit, session_cookie
from heliograph.rules.address import parse_address
from heliograph.rules.limits import MINUTE_MS
from heliograph.sealing import CannotOpen
from heliograph.storage.people import Person

ADDRESS_TRIES_MAX = 100  # a whole office or a proxy may share one
WRONG = "This address and password do not belong together."
WRONG_CODE = "This code is wrong, or was used before. Wait for the next one."
LOST_CODE = (
    "Codes of your app cannot be checked any more: the service's secret was changed. "
    "Use a recovery code, or ask an operator to turn the code off."
)
TICKET_MS = 10 * MINUTE_MS  # between the password and the code


async def show(visit: Visit) -> Answer:
    return Redirect("/dashboard") if visit.who else _page()


async def enter(visit: Visit) -> Answer:
    if "ticket" in visit.form:
        return await _enter_code(visit)
    email = visit.form.get("email", "").strip()
    address = parse_address(email)
    if address is None:
        return _page(email, WRONG, status=403)
    if wait := await begin_try(visit, address.normal):
        return _page(email, wait, status=429)
    person = await visit.people.find(address.normal)
    if not await is_right(person.password if person else None, visit.form.get("password", "")) or person is None:
        return _page(email, WRONG, status=403)
    await forgive_try(visit, person.email)
    if person.totp:
        return _page(ticket=_ticket(visit, person))
    return await let_in(visit, person.id, visit.query.get("next", ""))


async def _enter_code(visit: Visit) -> Answer:
    """The second step, with a ticket that says whose password was right."""
    ticket = visit.form["ticket"]
    person = await _person_of(visit, ticket)
    if person is None or not person.totp:
        return _page(wrong="That took too long. Begin again.", status=403)
    wrong = await wrong_code(visit, person, visit.form.get("code", ""))
    if wrong:
        return _page(wrong=wrong, ticket=ticket, status=403)
    return await let_in(visit, person.id, visit.query.get("next", ""))


def _page(email: str = "", wrong: str = "", *, ticket: str = "", status: int = 200) -> Page:
    return Page("sign_in.html", {"email": email, "wrong": wrong, "ticket": ticket}, status)


class Ticket(msgspec.Struct, frozen=True, array_like=True):
    person: str
    expires_at: int


def _ticket(visit: Visit, person: Person) -> str:
    ticket = Ticket(person.id, visit.desk.clock.now() + TICKET_MS)
    return visit.office.seal(msgspec.json.encode(ticket), "sign-in")


async def _person_of(visit: Visit, sealed: str) -> Person | None:
    try:
        ticket = msgspec.json.decode(visit.office.unseal(sealed, "sign-in"), type=Ticket)
    except CannotOpen:
        return None
    return await visit.people.get(ticket.person) if ticket.expires_at > visit.desk.clock.now() else None


# -- what every kind of entry shares -----------------------------------------------------------------------


async def begin_try(visit: Visit, email: str) -> str:
    """Why there can be no try now; empty: it is counted."""
    wait = await visit.begin_try(_limits(visit, email))
    minutes = -(-wait // MINUTE_MS)
    return f"Too many wrong tries. Try again in {minutes} minute{'s' if minutes > 1 else ''}." if wait else ""


async def forgive_try(visit: Visit, email: str) -> None:
    await visit.forgive_try(_limits(visit, email))


def _limits(visit: Visit, email: str) -> dict[str, int]:
    return {f"account {email}": TRIES_MAX, f"address {visit.address}": ADDRESS_TRIES_MAX}


async def wrong_code(visit: Visit, person: Person, typed: str) -> str:
    """Why this code does not do; empty: it does, and is used up. A recovery code does as well."""
    if wait := await begin_try(visit, person.email):
        return wait
    code = totp.plain(typed)
    wrong, step = WRONG_CODE, None
    try:
        secret = visit.office.unseal(person.totp or "", f"totp/{person.id}")
        step = totp.step_of(secret, code, visit.desk.clock.now())
    except CannotOpen:
        wrong = LOST_CODE
    if step is None:
        good = await visit.people.use_recovery(person.id, code)
    else:
        good = await visit.people.use_totp_step(person.id, step)
    if good:
        await forgive_try(visit, person.email)
    return "" if good else wrong


async def let_in(visit: Visit, person: str, next_page: str = "", told: str = "") -> Redirect:
    agent = visit.request.headers.get(b"user-agent", b"").decode("latin-1")
    token = await visit.people.sign_in(person, visit.address, agent)
    is_ours = next_page.startswith("/dashboard") and next_page.isascii() and next_page.isprintable()
    return Redirect(next_page if is_ours else "/dashboard", told, (session_cookie(token),))


async def leave(visit: Visit) -> Answer:
    await visit.people.end_session(visit.person.person, visit.person.session)
    return Redirect("/dashboard/sign-in", "You are signed out.", (session_cookie(""),))
