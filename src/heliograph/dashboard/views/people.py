"""All user accounts of the instance, for operators."""

from urllib.parse import quote

from heliograph.dashboard.link_mails import LINK_MAILED, ShownLink, link_terms, mail_or_show
from heliograph.dashboard.page_request import Page, PageNotFound, PageRequest, PageResponse, Redirect, field_errors
from heliograph.domain.accounts.idp_groups import OPERATOR, ROLES
from heliograph.domain.accounts.people import Person
from heliograph.domain.refusals import Refusal
from heliograph.manage import people
from heliograph.manage.people import LinkTerms, NewPerson
from heliograph.texts.dashboard_links import operator_page

PEOPLE_PATH = operator_page("person")
PAGE_SIZE = 50


async def add(request: PageRequest) -> PageResponse:
    new_person = NewPerson(email=request.form.get("email", ""), name=request.form.get("name", ""))
    operator, terms = request.form.get("operator"), link_terms(request)
    role = people.choose_instance_role(bool(operator), "read_only" in request.form or operator == "read-only")
    try:
        created = await people.add_person(request.store, request.actor, new_person, role, terms)
    except Refusal as refusal:
        return await show_new(request, field_errors(refusal))
    return await _show_link(request, created.person, created.token, "invite", terms)


async def show_person(request: PageRequest) -> PageResponse:
    return await _person_page(request, await _find_person(request))


async def make_link(request: PageRequest) -> PageResponse:
    person, terms = await _find_person(request), link_terms(request)
    purpose = "reset" if person.password and "invite" not in request.form else "invite"
    token = await people.make_link(request.store, request.actor, person, purpose, terms)
    return await _show_link(request, person, token, purpose, terms)


async def set_operator(request: PageRequest) -> PageResponse:
    person, terms = await _find_person(request), link_terms(request)
    try:
        role = people.choose_instance_role(
            bool(request.form.get("operator")), request.form.get("operator") == "read-only"
        )
        if not role:
            await people.remove_operator_role(request.store, request.actor, person)
            return _person_redirect(person, f"{person.email} is no longer an operator.")
        offer = await people.offer_instance_role(request.store, request.actor, person, role, terms)
    except Refusal as refusal:
        return await _person_page(request, person, error=refusal.message)
    if offer.token:
        return await _show_link(request, person, offer.token, "invite", terms)
    return _person_redirect(
        person, f"{person.email} is {'an operator' if role == OPERATOR else 'a read-only operator'} now."
    )


async def set_role(request: PageRequest) -> PageResponse:
    person, team, role = await _find_person(request), request.form.get("team", ""), request.form.get("role", "")
    if team not in request.setup.teams or role not in (*ROLES, ""):
        raise PageNotFound
    current_role, terms = (await request.store.people.get_roles(person.id)).get(team, ""), link_terms(request)
    if role and not current_role:
        offer = await people.offer_team_role(request.store, request.actor, person, team, role, terms)
        return await _show_link(request, person, offer.token, "invite", terms)
    role_args = (request.store, request.actor, person.id, person.email, team, current_role)
    try:
        await (people.set_role(*role_args, role) if role else people.remove_role(*role_args))
    except Refusal as refusal:
        return await _person_page(request, person, error=refusal.message)
    return _person_redirect(
        person, f"{person.email} is now {role} in {team}." if role else f"{person.email} is no longer in {team}."
    )


async def disable_totp(request: PageRequest) -> PageResponse:
    person = await _find_person(request)
    await people.disable_totp(request.store, request.actor, person)
    return _person_redirect(person, f"{person.email} can now sign in without two-factor authentication.")


async def disconnect(request: PageRequest) -> PageResponse:
    person = await _find_person(request)
    await people.disconnect_provider(request.store, request.actor, person)
    return _person_redirect(
        person, f"{person.email} was disconnected from the identity provider and signed out everywhere."
    )


async def end_sessions(request: PageRequest) -> PageResponse:
    person = await _find_person(request)
    await people.end_sessions(request.store, request.actor, person.id, person.email)
    return _person_redirect(person, f"{person.email} was signed out everywhere.")


async def remove(request: PageRequest) -> PageResponse:
    person = await _find_person(request)
    try:
        await people.remove(request.store, request.actor, person)
    except Refusal as refusal:
        return await _person_page(request, person, error=refusal.message)
    return Redirect(PEOPLE_PATH, f"{person.email} deleted.")


async def _find_person(request: PageRequest) -> Person:
    person = await request.store.people.get(request.params["person"])
    if person is None:
        raise PageNotFound
    return person


def _person_redirect(person: Person, notice: str) -> Redirect:
    return Redirect(f"{PEOPLE_PATH}/{person.id}", notice)


async def _show_link(request: PageRequest, person: Person, token: str, purpose: str, terms: LinkTerms) -> PageResponse:
    try:
        link = await mail_or_show(request, person, token, purpose, terms)
    except Refusal as refusal:
        return await _person_page(request, person, error=refusal.message)
    if link is None:
        return _person_redirect(person, LINK_MAILED.format(person.email))
    return await _person_page(request, person, new_link=link)


async def _person_page(
    request: PageRequest, person: Person, *, new_link: ShownLink | None = None, error: str = ""
) -> Page:
    name_by_team = {id_: team.record.name for id_, team in request.setup.teams.items()}
    values = {
        "person": person,
        "member_of": await request.store.people.get_roles(person.id),
        "invited_to": await request.store.people.list_invitations(person.id),
        "teams": sorted(name_by_team.items(), key=lambda pair: pair[1]),
        "names": name_by_team,
        "roles": ROLES,
        "sessions": await request.store.sessions.list_sessions(person.id),
        "passkeys": len(await request.store.passkeys.list_all(person.id)),
        "identities": await request.store.people.list_identities(person.id),
        "new_link": new_link,
        "error": error,
    }
    return Page("person.html", values, 400 if error else 200)


async def show_new(request: PageRequest, errors: dict[str, str] | None = None) -> Page:
    return Page.form("person_new.html", {"form": request.form}, errors)


async def show(request: PageRequest) -> Page:
    search, after = (request.query.get(name, "") for name in ("search", "after"))
    rows = await request.store.people.list_rows(search, after, PAGE_SIZE)
    next_page_url = (
        f"{PEOPLE_PATH}?search={quote(search)}&after={quote(rows[PAGE_SIZE - 1].email)}"
        if len(rows) > PAGE_SIZE
        else ""
    )
    values = {"people": rows[:PAGE_SIZE], "more": next_page_url, "search": search}
    return Page("people.html", values)
