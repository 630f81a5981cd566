"""For operators: everybody on the instance."""

from urllib.parse import quote

import msgspec

from heliograph.dashboard.link_mails import hand_over, told
from heliograph.dashboard.views.members import LAST_OWNER, read_person
from heliograph.dashboard.visit import ROLES, Answer, Gone, Page, Redirect, Visit
from heliograph.rules.audit import AuditEntry
from heliograph.rules.refusals import Refusal
from heliograph.storage.people import Link, Person

HERE = "/dashboard/operator/people"
PAGE = 50
LAST_OPERATOR = "The instance keeps an operator. Make somebody else one first."


async def show(visit: Visit) -> Answer:
    return await _list(visit)


async def add(visit: Visit) -> Answer:
    email, name, errors = read_person(visit.form)
    if email and await visit.store.people.find(email):
        errors["email"] = "This person is here already."
    if errors:
        return await _list(visit, errors)
    person = await visit.store.people.add(email, name)
    if operator := bool(visit.form.get("operator")):
        await visit.store.people.set_operator(person.id, True)
    return await _hand_over(visit, person, "invite", visit.entry("person.add", email, "operator" if operator else ""))


async def show_one(visit: Visit) -> Answer:
    return await _one(visit, await _person(visit))


async def make_link(visit: Visit) -> Answer:
    person = await _person(visit)
    purpose = "reset" if person.password and "invite" not in visit.form else "invite"
    return await _hand_over(visit, person, purpose, visit.entry("person.link", person.email, purpose))


async def set_operator(visit: Visit) -> Answer:
    person, operator = await _person(visit), bool(visit.form.get("operator"))
    entry = visit.entry("person.operator", person.email, "yes" if operator else "no")
    if not await visit.store.people.set_operator(person.id, operator, entry):
        return await _one(visit, person, error=LAST_OPERATOR)
    if operator and not person.operator:
        return await _hand_over(visit, person, "invite", visit.entry("person.link", person.email, "invite"))
    return _back(person, f"{person.email} is {'an operator' if operator else 'no operator'} now.")


async def set_role(visit: Visit) -> Answer:
    person, team, role = await _person(visit), visit.form.get("team", ""), visit.form.get("role", "")
    if team not in visit.setup.teams or role not in (*ROLES, ""):
        raise Gone
    is_new = role and team not in await visit.store.people.roles(person.id)
    action = "member.invite" if is_new else "member.role" if role else "member.remove"
    entry = visit.entry(action, person.email, role)
    entry = msgspec.structs.replace(entry, team=team)
    if not await visit.store.people.set_role(person.id, team, role or None, entry):
        return await _one(visit, person, error=LAST_OWNER)
    if is_new:
        return await _hand_over(visit, person, "invite", visit.entry("person.link", person.email, "invite"))
    return _back(person, f"{person.email} is now {role or 'not'} in {team}.")


async def drop_totp(visit: Visit) -> Answer:
    person = await _person(visit)
    await visit.store.people.set_totp(person.id, None, [], visit.entry("person.totp", person.email, "off"))
    return _back(person, f"{person.email} signs in without a code now.")


async def end_sessions(visit: Visit) -> Answer:
    person = await _person(visit)
    await visit.store.people.end_other_sessions(person.id, "")
    await visit.note("person.sessions", person.email)
    return _back(person, f"{person.email} is signed out everywhere.")


async def remove(visit: Visit) -> Answer:
    person = await _person(visit)
    if not await visit.store.people.remove(person.id, visit.entry("person.remove", person.email, person.id)):
        return await _one(visit, person, error=LAST_OPERATOR)
    return Redirect(HERE, f"{person.email} is removed.")


async def _person(visit: Visit) -> Person:
    person = await visit.store.people.get(visit.params["person"])
    if person is None:
        raise Gone
    return person


def _back(person: Person, told: str) -> Redirect:
    return Redirect(f"{HERE}/{person.id}", told)


async def _hand_over(visit: Visit, person: Person, purpose: str, entry: AuditEntry) -> Answer:
    try:
        link = await hand_over(visit, person, Link(person.id, purpose), entry)
    except Refusal as refusal:
        return await _one(visit, person, error=refusal.message)
    return await _one(visit, person, handed=(link, purpose, person)) if link else _back(person, told(person))


async def _one(visit: Visit, person: Person, *, handed: tuple[str, str, Person] | None = None, error: str = "") -> Page:
    names = {id_: team.record.name for id_, team in visit.setup.teams.items()}
    values = {
        "person": person,
        "member_of": await visit.store.people.roles(person.id),
        "invited_to": await visit.store.people.invitations(person.id),
        "teams": sorted(names.items(), key=lambda pair: pair[1]),
        "names": names,
        "roles": ROLES,
        "sessions": await visit.store.people.sessions(person.id),
        "handed": handed,
        "error": error,
    }
    return Page("person.html", values, 400 if error else 200)


async def _list(visit: Visit, errors: dict[str, str] | None = None) -> Page:
    search, after = (visit.query.get(name, "").replace("\0", "") for name in ("search", "after"))
    lines = await visit.store.people.lines(search, after, PAGE)
    more = f"{HERE}?search={quote(search)}&after={quote(lines[PAGE - 1].email)}" if len(lines) > PAGE else ""
    values = {"people": lines[:PAGE], "more": more, "search": search, "form": visit.form, "errors": errors or {}}
    return Page("people.html", values, 400 if errors else 200)
