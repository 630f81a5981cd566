"""Members of a team: list, roles, invitations and links."""

from heliograph.dashboard.link_mails import MAILED, mail_or_show, terms_of
from heliograph.dashboard.page_request import Answer, Gone, Page, Redirect, Visit, errors_of
from heliograph.domain.accounts.idp_groups import ROLES
from heliograph.domain.accounts.people import Person
from heliograph.domain.refusals import Refusal
from heliograph.manage import people
from heliograph.manage.people import LinkTerms, NewPerson
from heliograph.storage.people import Member


async def invite(visit: Visit) -> Answer:
    wanted = NewPerson(email=visit.form.get("email", ""), name=visit.form.get("name", ""))
    team, role, terms = visit.team.record.id, visit.form.get("role", ""), terms_of(visit)
    try:
        made = await people.invite(visit.store, visit.actor, team, wanted, role, terms)
    except Refusal as refusal:
        return _new(visit.form, errors_of(refusal))
    return await _show_link(visit, made.person, made.token, "invite", terms)


async def make_link(visit: Visit) -> Answer:
    """Create a new invitation link, or a password reset link for a member who has accepted."""
    member, team, terms = await _member(visit), visit.team.record.id, terms_of(visit)
    person = await visit.store.people.get(member.id)
    if person is None:
        raise Gone
    purpose = "invite" if member.invited else "reset"
    try:
        token = await people.make_team_link(visit.store, visit.actor, person, team, purpose, terms)
    except Refusal as refusal:
        return Redirect(f"{visit.base}/team", refusal.message)
    return await _show_link(visit, person, token, purpose, terms)


async def set_role(visit: Visit) -> Answer:
    member, role = await _member(visit), visit.form.get("role", "")
    if role not in ROLES:
        raise Gone
    team = visit.team.record.id
    try:
        await people.set_role(visit.store, visit.actor, member.id, member.email, team, member.role, role)
    except Refusal as refusal:
        return await show(visit, errors={"members": refusal.message})
    return Redirect(f"{visit.base}/team", f"{member.email} is now {role}.")


async def remove(visit: Visit) -> Answer:
    member = await _member(visit)
    team = visit.team.record.id
    try:
        await people.end_role(visit.store, visit.actor, member.id, member.email, team, member.role)
    except Refusal as refusal:
        return await show(visit, errors={"members": refusal.message})
    return Redirect(f"{visit.base}/team", f"{member.email} is no longer here.")


async def _member(visit: Visit) -> Member:
    members = await visit.store.people.members(visit.team.record.id)
    found = next((member for member in members if member.id == visit.params["person"]), None)
    if found is None:
        raise Gone
    return found


async def _show_link(visit: Visit, person: Person, token: str, purpose: str, terms: LinkTerms) -> Answer:
    try:
        link = await mail_or_show(visit, person, token, purpose, terms)
    except Refusal as refusal:
        return await show(visit, errors={"members": refusal.message})
    if not link:
        return Redirect(f"{visit.base}/team", MAILED.format(person.email))
    return await show(visit, handed=(link, purpose, person))


async def show_new(visit: Visit) -> Page:
    return _new({})


def _new(form: dict[str, str], errors: dict[str, str] | None = None) -> Page:
    return Page("member_new.html", {"form": form, "errors": errors or {}}, 400 if errors else 200)


async def show(
    visit: Visit,
    errors: dict[str, str] | None = None,
    handed: tuple[str, str, Person] | None = None,
) -> Page:
    members = await visit.store.people.members(visit.team.record.id)
    values = {
        "members": members,
        "errors": errors or {},
        "handed": handed,
        "roles": ROLES,
    }
    return Page("members.html", values, 400 if errors else 200)
