"""One-time links: first operator, invitation, password reset and demo sign-in."""

from heliograph.dashboard.page_request import Answer, Gone, Page, Redirect, Visit, errors_of
from heliograph.dashboard.passwords import complaint, hash_password, is_right
from heliograph.dashboard.views.sign_in import let_in, wrong_code
from heliograph.domain.accounts.people import Link, Person
from heliograph.domain.audit.actor import Actor
from heliograph.domain.refusals import InvalidRequest
from heliograph.manage import people, teams
from heliograph.manage.people import NewPerson, read_person
from heliograph.texts.dashboard_links import HOME, of_team

CLOSED = "Passwords are not in use here: sign in, and answer invitations there."
OVER = "This link is good no more. Ask whoever gave it to you for a new one."
SAME = "Choose another password than the one you have: somebody who made you a link may know it."


async def show(visit: Visit) -> Answer:
    link, person = await _linked(visit)
    if _is_closed(visit, link):
        return Redirect(HOME if visit.who else "/dashboard/sign-in", CLOSED)
    if _is_here(link, person) and visit.who is None:
        return Redirect(f"/dashboard/sign-in?next={visit.request.path}")
    return await _page(visit, link, person)


async def follow(visit: Visit) -> Answer:
    """Use the link: sign in (demo), create the first operator, or accept or decline an invitation.

    Most links require a new password.
    """
    link, person = await _linked(visit)
    if _is_closed(visit, link):
        raise Gone(CLOSED)
    if link.purpose == "demo" and person:
        await visit.store.people.use_link(visit.params["token"], "demo")
        return await let_in(visit, person, of_team(link.team), notice="Welcome.", how="with a link")
    if link.purpose == "first":
        return await _begin(visit, link)
    if person is None or (_is_here(link, person) and not _is_signed_in(visit, person)):
        raise Gone
    if "decline" in visit.form and link.team:
        await people.decline(visit.store, _actor(visit, person.id), person, link.team)
        return Redirect(HOME, "The invitation is declined.")
    return await _follow(visit, link, person)


async def _follow(visit: Visit, link: Link, person: Person) -> Answer:
    errors, hashed = {}, None
    if not (_is_here(link, person) and person.proven):
        password = visit.form.get("password", "")
        if wrong := complaint(password):
            errors["password"] = wrong
        elif _is_here(link, person) and await is_right(person.password, password):
            errors["password"] = SAME
        if not errors and person.totp and (wrong := await wrong_code(visit, person, visit.form.get("code", ""))):
            errors["code"] = wrong
        if errors:
            return await _page(visit, link, person, errors)
        hashed = await hash_password(password)
    kept = visit.who.session if visit.who and _is_signed_in(visit, person) else ""
    actor, token = _actor(visit, person.id), visit.params["token"]
    followed = await people.follow(visit.store, actor, person, token, link.purpose, hashed, kept)
    if followed is None:
        raise Gone
    if kept and _is_here(link, person):
        return Redirect(of_team(link.team) if link.team else HOME, "Welcome.")
    return await let_in(visit, followed, notice="Welcome.")


async def _begin(visit: Visit, link: Link) -> Answer:
    """Create the first operator account, and the first team if its name is given."""
    password = visit.form.get("password", "")
    wrong, given = complaint(password), NewPerson(email=visit.form.get("email", ""), name=visit.form.get("name", ""))
    try:
        read_person(given, {"password": wrong} if wrong else {})
    except InvalidRequest as refusal:
        return await _page(visit, link, None, errors_of(refusal))
    hashed = await hash_password(password)
    person = await people.follow_first(visit.store, _actor(visit), given, visit.params["token"], hashed)
    if person is None:
        raise Gone(OVER)
    team = visit.form.get("team", "").strip()
    if not team or visit.setup.teams:
        return await let_in(visit, person, notice="Welcome.")
    try:
        made = await teams.create(visit.store, _actor(visit, person.id), {"name": team})
    except InvalidRequest as refusal:
        return await let_in(visit, person, notice=refusal.message)
    return await let_in(visit, person, of_team(made.id), notice="Welcome. Send a test message to see it work.")


async def _linked(visit: Visit) -> tuple[Link, Person | None]:
    """Return the link and its user. Raises Gone if the link is invalid or expired, or its team is suspended."""
    link = await visit.store.people.find_link(visit.params["token"])
    if link is None or link.purpose in ("ticket", "spent"):
        raise Gone(OVER)
    if link.team and (link.team not in visit.setup.teams or visit.setup.teams[link.team].record.suspended):
        raise Gone(OVER)
    if link.purpose == "first":
        if await visit.store.people.count():
            raise Gone(OVER)
        return link, None
    person = await visit.store.people.get(link.person)
    if person is None:
        raise Gone(OVER)
    return link, person


def _is_closed(visit: Visit, link: Link) -> bool:
    """Return whether the link is disabled because password sign-in is off.

    Links made on the command line stay valid: they allow sign-in without the identity provider.
    """
    return not visit.tools.passwords and bool(link.maker)


def _is_here(link: Link, person: Person | None) -> bool:
    return person is not None and link.only_accepts(person)


def _is_signed_in(visit: Visit, person: Person) -> bool:
    return visit.who is not None and visit.who.person == person.id


def _actor(visit: Visit, person: str = "") -> Actor:
    """Return the actor for a user who followed a link and is not signed in yet."""
    return Actor(kind="person", id=person, address=visit.address)


async def _page(visit: Visit, link: Link, person: Person | None, errors: dict[str, str] | None = None) -> Page:
    pending = await visit.store.people.invitations(person.id) if person and link.purpose == "invite" else {}
    names = {id_: team.record.name for id_, team in visit.setup.teams.items()}
    values = {
        "link": link,
        "person": person,
        "invitations": [(names.get(team, ""), role) for team, role in pending.items() if link.team in ("", team)],
        "is_here": _is_here(link, person),
        "is_other": bool(_is_here(link, person) and person and not _is_signed_in(visit, person)),
        "form": visit.form,
        "errors": errors or {},
        "is_bare": not visit.setup.teams,
    }
    return Page("link.html", values, 400 if errors else 200)
