"""The people of a team: who they are, what they may do, and how others join."""

from heliograph.dashboard.visit import ROLES, Answer, Gone, Page, Redirect, Visit
from heliograph.rules.address import parse_address
from heliograph.rules.reading import line
from heliograph.storage.people import Member, Person

LAST_OWNER = "A team keeps an owner. Make somebody else one first."


async def show(visit: Visit) -> Answer:
    return await _page(visit)


async def invite(visit: Visit) -> Answer:
    email, name, errors = read_person(visit.form)
    role = visit.form.get("role", "")
    if role not in ROLES:
        errors["role"] = "Choose a role."
    roles = {member.email: member.role for member in await visit.people.members(visit.team.record.id)}
    if email in roles:
        errors["email"] = f"They are here already, as {roles[email]}."
    if errors:
        return await _page(visit, visit.form, errors)
    person = await visit.people.add(email, name)
    entry = visit.entry("member.add", email, role)
    await visit.people.set_role(person.id, visit.team.record.id, role, entry)
    if person.password or not await _may_make_link(visit, person):
        return Redirect(f"{visit.base}/team", f"{email} is now {role} here, and signs in as before.")
    return await _hand_over(visit, person, "welcome")


async def make_link(visit: Visit) -> Answer:
    """For who forgot the password, or lost the invitation."""
    person = await visit.people.get((await _member(visit)).id)
    if person is None:
        raise Gone
    if not await _may_make_link(visit, person):
        return Redirect(f"{visit.base}/team", f"{person.email} is in other teams too: ask an operator for the link.")
    return await _hand_over(visit, person, "reset" if person.password else "welcome")


async def set_role(visit: Visit) -> Answer:
    member, role = await _member(visit), visit.form.get("role", "")
    if role not in ROLES:
        raise Gone
    entry = visit.entry("member.role", member.email, f"{member.role} → {role}")
    done = await visit.people.set_role(member.id, visit.team.record.id, role, entry)
    return Redirect(f"{visit.base}/team", f"{member.email} is now {role}.") if done else await _refused(visit)


async def remove(visit: Visit) -> Answer:
    member = await _member(visit)
    entry = visit.entry("member.remove", member.email, member.role)
    done = await visit.people.set_role(member.id, visit.team.record.id, None, entry)
    return Redirect(f"{visit.base}/team", f"{member.email} is no longer here.") if done else await _refused(visit)


def read_person(form: dict[str, str]) -> tuple[str, str, dict[str, str]]:
    """Address, name (or else the address), and what is wrong with them by field."""
    address, name = parse_address(form.get("email", "").strip()), form.get("name", "").strip()
    errors = {} if address else {"email": "This is not an email address."}
    if name:
        try:
            line(name)
        except ValueError:
            errors["name"] = "A name is one line of at most 200 characters."
    return address.normal if address else "", name or (address.normal if address else ""), errors


async def _may_make_link(visit: Visit, person: Person) -> bool:
    """A link takes the whole account: an owner makes one only for who is in no other team and no operator."""
    elsewhere = set(await visit.people.roles(person.id)) - {visit.team.record.id}
    return visit.may("operator") or not (person.operator or elsewhere)


async def _member(visit: Visit) -> Member:
    members = await visit.people.members(visit.team.record.id)
    found = next((member for member in members if member.id == visit.params["person"]), None)
    if found is None:
        raise Gone
    return found


async def _hand_over(visit: Visit, person: Person, purpose: str) -> Page:
    token = await visit.people.make_link(person.id, purpose, visit.entry(f"link.{purpose}", person.email))
    return await _page(visit, link=f"{visit.desk.base_url}/dashboard/link/{token}", link_for=person.email)


async def _refused(visit: Visit) -> Page:
    return await _page(visit, errors={"members": LAST_OWNER})


async def _page(
    visit: Visit,
    form: dict[str, str] | None = None,
    errors: dict[str, str] | None = None,
    link: str = "",
    link_for: str = "",
) -> Page:
    members = await visit.people.members(visit.team.record.id)
    values = {
        "members": members,
        "form": form or {},
        "errors": errors or {},
        "link": link,
        "link_for": link_for,
        "roles": ROLES,
    }
    return Page("members.html", values, 400 if errors else 200)
