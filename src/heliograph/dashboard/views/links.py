"""One-time links: first operator, invitation, password reset and demo sign-in."""

from heliograph.dashboard.page_request import Page, PageNotFound, PageRequest, PageResponse, Redirect, field_errors
from heliograph.dashboard.passwords import find_password_problem, hash_password, verify_password
from heliograph.dashboard.views.sign_in import code_error, start_session
from heliograph.domain.accounts.people import Link, Person
from heliograph.domain.audit.actor import Actor
from heliograph.domain.refusals import InvalidRequest
from heliograph.manage import people, teams
from heliograph.manage.people import NewPerson, read_person
from heliograph.texts.dashboard_links import HOME, team_page

PASSWORDS_DISABLED = "This instance doesn't use passwords. Sign in to accept or decline invitations."
LINK_INVALID = "This link is no longer valid. Ask the person who sent it for a new one."
SAME_PASSWORD = "Choose a password that differs from your current one."


async def show(request: PageRequest) -> PageResponse:
    link, person = await _find_link(request)
    if _is_disabled(request, link):
        return Redirect(HOME if request.signed_in else "/dashboard/sign-in", PASSWORDS_DISABLED)
    if _is_verified_account(link, person) and request.signed_in is None:
        return Redirect(f"/dashboard/sign-in?next={request.http.path}")
    return await _page(request, link, person)


async def follow(request: PageRequest) -> PageResponse:
    """Use the link: sign in (demo), create the first operator, answer an invitation, or reset the password."""
    link, person = await _find_link(request)
    if _is_disabled(request, link):
        raise PageNotFound(PASSWORDS_DISABLED)
    if link.purpose == "demo" and person:
        await request.store.people.use_link(request.params["token"], "demo")
        return await start_session(request, person, team_page(link.team), notice="Welcome.", audit_detail="with a link")
    if link.purpose == "first":
        return await _create_first_operator(request, link)
    if person is None or (_is_verified_account(link, person) and not _is_signed_in(request, person)):
        raise PageNotFound
    if "decline" in request.form and link.team:
        await people.decline_invitation(request.store, _actor_of_link(request, person.id), person, link.team)
        return Redirect(HOME, "Invitation declined.")
    return await _accept(request, link, person)


async def _accept(request: PageRequest, link: Link, person: Person) -> PageResponse:
    errors, hashed = {}, None
    if not (_is_verified_account(link, person) and person.proven):
        password = request.form.get("password", "")
        if problem := find_password_problem(password):
            errors["password"] = problem
        elif _is_verified_account(link, person) and await verify_password(person.password, password):
            errors["password"] = SAME_PASSWORD
        if not errors and person.totp and (problem := await code_error(request, person, request.form.get("code", ""))):
            errors["code"] = problem
        if errors:
            return await _page(request, link, person, errors)
        hashed = await hash_password(password)
    kept_session = request.signed_in.session if request.signed_in and _is_signed_in(request, person) else ""
    actor, token = _actor_of_link(request, person.id), request.params["token"]
    accepted = await people.follow_link(request.store, actor, person, token, link.purpose, hashed, kept_session)
    if accepted is None:
        raise PageNotFound
    if kept_session and _is_verified_account(link, person):
        return Redirect(team_page(link.team) if link.team else HOME, "Welcome.")
    return await start_session(request, accepted, notice="Welcome.")


async def _create_first_operator(request: PageRequest, link: Link) -> PageResponse:
    """Create the first operator's account, and the first team if a name is given."""
    password = request.form.get("password", "")
    problem = find_password_problem(password)
    new_person = NewPerson(email=request.form.get("email", ""), name=request.form.get("name", ""))
    try:
        read_person(new_person, {"password": problem} if problem else {})
    except InvalidRequest as refusal:
        return await _page(request, link, None, field_errors(refusal))
    hashed = await hash_password(password)
    person = await people.follow_first_link(
        request.store, _actor_of_link(request), new_person, request.params["token"], hashed
    )
    if person is None:
        raise PageNotFound(LINK_INVALID)
    team = request.form.get("team", "").strip()
    if not team or request.setup.teams:
        return await start_session(request, person, notice="Welcome.")
    try:
        created = await teams.create(request.store, _actor_of_link(request, person.id), {"name": team})
    except InvalidRequest as refusal:
        return await start_session(request, person, notice=refusal.message)
    return await start_session(
        request, person, team_page(created.id), notice="Welcome. Send a test message to try it out."
    )


async def _find_link(request: PageRequest) -> tuple[Link, Person | None]:
    """Return the link and its user. Raises PageNotFound if the link is invalid or expired, or its team is suspended."""
    link = await request.store.people.find_link(request.params["token"])
    if link is None or link.purpose in ("ticket", "spent"):
        raise PageNotFound(LINK_INVALID)
    if link.team and (link.team not in request.setup.teams or request.setup.teams[link.team].record.suspended):
        raise PageNotFound(LINK_INVALID)
    if link.purpose == "first":
        if await request.store.people.count():
            raise PageNotFound(LINK_INVALID)
        return link, None
    person = await request.store.people.get(link.person)
    if person is None:
        raise PageNotFound(LINK_INVALID)
    return link, person


def _is_disabled(request: PageRequest, link: Link) -> bool:
    """Return whether the link cannot be used because password sign-in is disabled.

    Links created on the command line work even then, for sign-in without the identity provider.
    """
    return not request.tools.password_sign_in and bool(link.maker)


def _is_verified_account(link: Link, person: Person | None) -> bool:
    return person is not None and link.requires_sign_in(person)


def _is_signed_in(request: PageRequest, person: Person) -> bool:
    return request.signed_in is not None and request.signed_in.person == person.id


def _actor_of_link(request: PageRequest, person: str = "") -> Actor:
    """Return the actor for the audit log: the link's user, who is not signed in yet."""
    return Actor(kind="person", id=person, address=request.client_ip)


async def _page(request: PageRequest, link: Link, person: Person | None, errors: dict[str, str] | None = None) -> Page:
    invitations = await request.store.people.list_invitations(person.id) if person and link.purpose == "invite" else {}
    name_by_team = {id_: team.record.name for id_, team in request.setup.teams.items()}
    values = {
        "link": link,
        "person": person,
        "invitations": [
            (name_by_team.get(team, ""), role) for team, role in invitations.items() if link.team in ("", team)
        ],
        "is_here": _is_verified_account(link, person),
        "is_other": bool(_is_verified_account(link, person) and person and not _is_signed_in(request, person)),
        "form": request.form,
        "is_bare": not request.setup.teams,
    }
    return Page.form("link.html", values, errors)
