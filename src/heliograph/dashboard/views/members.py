"""Members of a team: list, roles, invitations and links."""

from heliograph.dashboard.link_mails import LINK_MAILED, ShownLink, link_terms, mail_or_show
from heliograph.dashboard.page_request import Page, PageNotFound, PageRequest, PageResponse, Redirect, field_errors
from heliograph.domain.accounts.idp_groups import ROLES
from heliograph.domain.accounts.people import Person
from heliograph.domain.refusals import Refusal
from heliograph.manage import people
from heliograph.manage.people import LinkTerms, NewPerson
from heliograph.storage.people import Member


async def invite(request: PageRequest) -> PageResponse:
    new_person = NewPerson(email=request.form.get("email", ""), name=request.form.get("name", ""))
    team, role, terms = request.team.record.id, request.form.get("role", ""), link_terms(request)
    try:
        created = await people.invite(request.store, request.actor, team, new_person, role, terms)
    except Refusal as refusal:
        return _new_page(request.form, field_errors(refusal))
    return await _show_link(request, created.person, created.token, "invite", terms)


async def make_link(request: PageRequest) -> PageResponse:
    """Create a new invitation link; for a member who has accepted, a password reset link."""
    member, team, terms = await _find_member(request), request.team.record.id, link_terms(request)
    person = await request.store.people.get(member.id)
    if person is None:
        raise PageNotFound
    purpose = "invite" if member.invited else "reset"
    try:
        token = await people.make_team_link(request.store, request.actor, person, team, purpose, terms)
    except Refusal as refusal:
        return Redirect(f"{request.team_path}/team", refusal.message)
    return await _show_link(request, person, token, purpose, terms)


async def set_role(request: PageRequest) -> PageResponse:
    member, role = await _find_member(request), request.form.get("role", "")
    if role not in ROLES:
        raise PageNotFound
    team = request.team.record.id
    try:
        await people.set_role(request.store, request.actor, member.id, member.email, team, member.role, role)
    except Refusal as refusal:
        return await show(request, errors={"members": refusal.message})
    return Redirect(f"{request.team_path}/team", f"{member.email} is now {role}.")


async def remove(request: PageRequest) -> PageResponse:
    member = await _find_member(request)
    team = request.team.record.id
    try:
        await people.remove_role(request.store, request.actor, member.id, member.email, team, member.role)
    except Refusal as refusal:
        return await show(request, errors={"members": refusal.message})
    return Redirect(f"{request.team_path}/team", f"{member.email} removed from the team.")


async def _find_member(request: PageRequest) -> Member:
    members = await request.store.people.list_members(request.team.record.id)
    result = next((member for member in members if member.id == request.params["person"]), None)
    if result is None:
        raise PageNotFound
    return result


async def _show_link(request: PageRequest, person: Person, token: str, purpose: str, terms: LinkTerms) -> PageResponse:
    try:
        link = await mail_or_show(request, person, token, purpose, terms)
    except Refusal as refusal:
        return await show(request, errors={"members": refusal.message})
    if link is None:
        return Redirect(f"{request.team_path}/team", LINK_MAILED.format(person.email))
    return await show(request, new_link=link)


async def show_new(request: PageRequest) -> Page:
    return _new_page({})


def _new_page(form: dict[str, str], errors: dict[str, str] | None = None) -> Page:
    return Page.form("member_new.html", {"form": form}, errors)


async def show(request: PageRequest, errors: dict[str, str] | None = None, new_link: ShownLink | None = None) -> Page:
    members = await request.store.people.list_members(request.team.record.id)
    return Page.form("members.html", {"members": members, "new_link": new_link, "roles": ROLES}, errors)
