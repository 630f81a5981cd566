"""Links that let somebody in once: the first operator, an invitation, a forgotten password, the demo."""

from heliograph.dashboard.passwords import complaint, hash_password
from heliograph.dashboard.views.members import read_person
from heliograph.dashboard.views.sign_in import let_in, wrong_code
from heliograph.dashboard.visit import Answer, Gone, Page, Visit
from heliograph.storage.audit import AuditEntry
from heliograph.storage.people import Person


async def show(visit: Visit) -> Answer:
    return _page(*await _linked(visit))


async def follow(visit: Visit) -> Answer:
    """The demo's link signs in at once; the others ask for a new password first."""
    purpose, person = await _linked(visit)
    if purpose == "demo":
        return await let_in(visit, (await _use(visit)).id, told="Welcome.")
    password, errors = visit.form.get("password", ""), {}
    email, name, wrong_words = read_person(visit.form)
    if purpose == "first":
        errors = wrong_words
    if wrong := complaint(password):
        errors["password"] = wrong
    if person and person.totp and not errors and (wrong := await wrong_code(visit, person, visit.form.get("code", ""))):
        errors["code"] = wrong
    if errors:
        return _page(purpose, person, visit.form, errors)
    hashed = await hash_password(password)
    person = await (_use(visit) if purpose != "first" else _first(visit, email, name))
    await visit.people.set_password(person.id, hashed, _entry(visit, person, purpose))
    return await let_in(visit, person.id, told="Welcome.")


async def _linked(visit: Visit) -> tuple[str, Person | None]:
    """The link's purpose and whom it is for; the first operator is nobody yet."""
    found = await visit.people.find_link(visit.params["token"])
    if found is None:
        raise Gone
    person, purpose = found
    if purpose == "first" and not await visit.people.count():
        return purpose, None
    return purpose, _known(await visit.people.get(person))


async def _use(visit: Visit) -> Person:
    used = await visit.people.use_link(visit.params["token"])
    return _known(await visit.people.get(used[0]) if used else None)


async def _first(visit: Visit, email: str, name: str) -> Person:
    return _known(await visit.people.add_first(visit.params["token"], email, name))


def _known(person: Person | None) -> Person:
    if person is None:
        raise Gone
    return person


def _entry(visit: Visit, person: Person, purpose: str) -> AuditEntry:
    return AuditEntry(
        at=visit.desk.clock.now(),
        person=person.id,
        action="account.password",
        subject=person.email,
        detail=f"by a link ({purpose})",
        address=visit.address,
    )


def _page(
    purpose: str, person: Person | None, form: dict[str, str] | None = None, errors: dict[str, str] | None = None
) -> Page:
    values = {"purpose": purpose, "person": person, "form": form or {}, "errors": errors or {}}
    return Page("link.html", values, 400 if errors else 200)
