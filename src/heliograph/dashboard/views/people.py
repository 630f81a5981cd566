"""All user accounts of the instance, for operators."""

from urllib.parse import quote

from heliograph.dashboard.link_mails import MAILED, mail_or_show, terms_of
from heliograph.dashboard.page_request import Answer, Gone, Page, Redirect, Visit, errors_of
from heliograph.domain.accounts.idp_groups import OPERATOR, ROLES
from heliograph.domain.accounts.people import Person
from heliograph.domain.refusals import Refusal
from heliograph.manage import people
from heliograph.manage.people import LinkTerms, NewPerson
from heliograph.texts.dashboard_links import of_instance

HERE = of_instance("person")
PAGE = 50


async def add(visit: Visit) -> Answer:
    wanted = NewPerson(email=visit.form.get("email", ""), name=visit.form.get("name", ""))
    role, terms = people.instance_role("operator" in visit.form, "read_only" in visit.form), terms_of(visit)
    try:
        made = await people.add(visit.store, visit.actor, wanted, role, terms)
    except Refusal as refusal:
        return await show_new(visit, errors_of(refusal))
    return await _show_link(visit, made.person, made.token, "invite", terms)


async def show_one(visit: Visit) -> Answer:
    return await _one(visit, await _person(visit))


async def make_link(visit: Visit) -> Answer:
    person, terms = await _person(visit), terms_of(visit)
    purpose = "reset" if person.password and "invite" not in visit.form else "invite"
    token = await people.make_link(visit.store, visit.actor, person, purpose, terms)
    return await _show_link(visit, person, token, purpose, terms)


async def set_operator(visit: Visit) -> Answer:
    person, terms = await _person(visit), terms_of(visit)
    try:
        role = people.instance_role(bool(visit.form.get("operator")), visit.form.get("operator") == "read-only")
        if not role:
            await people.end_operator(visit.store, visit.actor, person)
            return _back(person, f"{person.email} is no longer an operator.")
        made = await people.offer_operator(visit.store, visit.actor, person, role, terms)
    except Refusal as refusal:
        return await _one(visit, person, error=refusal.message)
    if made.token:
        return await _show_link(visit, person, made.token, "invite", terms)
    return _back(person, f"{person.email} is {'an operator' if role == OPERATOR else 'a read-only operator'} now.")


async def set_role(visit: Visit) -> Answer:
    person, team, role = await _person(visit), visit.form.get("team", ""), visit.form.get("role", "")
    if team not in visit.setup.teams or role not in (*ROLES, ""):
        raise Gone
    before, terms = (await visit.store.people.roles(person.id)).get(team, ""), terms_of(visit)
    if role and not before:
        made = await people.offer_role(visit.store, visit.actor, person, team, role, terms)
        return await _show_link(visit, person, made.token, "invite", terms)
    given = (visit.store, visit.actor, person.id, person.email, team, before)
    try:
        await (people.set_role(*given, role) if role else people.end_role(*given))
    except Refusal as refusal:
        return await _one(visit, person, error=refusal.message)
    return _back(person, f"{person.email} is now {role or 'not'} in {team}.")


async def drop_totp(visit: Visit) -> Answer:
    person = await _person(visit)
    await people.end_totp(visit.store, visit.actor, person)
    return _back(person, f"{person.email} now signs in without two-factor authentication.")


async def disconnect(visit: Visit) -> Answer:
    person = await _person(visit)
    await people.disconnect(visit.store, visit.actor, person)
    return _back(person, f"{person.email} is connected to no identity provider, and signed out everywhere.")


async def end_sessions(visit: Visit) -> Answer:
    person = await _person(visit)
    await people.end_sessions(visit.store, visit.actor, person.id, person.email)
    return _back(person, f"{person.email} is signed out everywhere.")


async def remove(visit: Visit) -> Answer:
    person = await _person(visit)
    try:
        await people.remove(visit.store, visit.actor, person)
    except Refusal as refusal:
        return await _one(visit, person, error=refusal.message)
    return Redirect(HERE, f"{person.email} is deleted.")


async def _person(visit: Visit) -> Person:
    person = await visit.store.people.get(visit.params["person"])
    if person is None:
        raise Gone
    return person


def _back(person: Person, notice: str) -> Redirect:
    return Redirect(f"{HERE}/{person.id}", notice)


async def _show_link(visit: Visit, person: Person, token: str, purpose: str, terms: LinkTerms) -> Answer:
    try:
        link = await mail_or_show(visit, person, token, purpose, terms)
    except Refusal as refusal:
        return await _one(visit, person, error=refusal.message)
    return (
        await _one(visit, person, handed=(link, purpose, person))
        if link
        else _back(person, MAILED.format(person.email))
    )


async def _one(visit: Visit, person: Person, *, handed: tuple[str, str, Person] | None = None, error: str = "") -> Page:
    names = {id_: team.record.name for id_, team in visit.setup.teams.items()}
    values = {
        "person": person,
        "member_of": await visit.store.people.roles(person.id),
        "invited_to": await visit.store.people.invitations(person.id),
        "teams": sorted(names.items(), key=lambda pair: pair[1]),
        "names": names,
        "roles": ROLES,
        "sessions": await visit.store.sessions.of(person.id),
        "passkeys": len(await visit.store.passkeys.of(person.id)),
        "identities": await visit.store.people.identities(person.id),
        "handed": handed,
        "error": error,
    }
    return Page("person.html", values, 400 if error else 200)


async def show_new(visit: Visit, errors: dict[str, str] | None = None) -> Page:
    return Page("person_new.html", {"form": visit.form, "errors": errors or {}}, 400 if errors else 200)


async def show(visit: Visit) -> Page:
    search, after = (visit.query.get(name, "") for name in ("search", "after"))
    lines = await visit.store.people.lines(search, after, PAGE)
    more = f"{HERE}?search={quote(search)}&after={quote(lines[PAGE - 1].email)}" if len(lines) > PAGE else ""
    values = {"people": lines[:PAGE], "more": more, "search": search}
    return Page("people.html", values)
