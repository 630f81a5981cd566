"""The people of a team: who they are, what they may do, and how others join."""

from heliograph.dashboard.link_mails import hand_over, told
from heliograph.dashboard.visit import ROLES, Answer, Gone, Page, Redirect, Visit
from heliograph.rules.address import parse_address
from heliograph.rules.refusals import Refusal
from heliograph.rules.text import line
from heliograph.storage.people import Link, Member, Person

LAST_OWNER = "A team keeps an owner. Make somebody else one first."


async def show(visit: Visit) -> Answer:
    return await _page(visit)


async def invite(visit: Visit) -> Answer:
    email, name, errors = read_person(visit.form)
    role = visit.form.get("role", "")
    if role not in ROLES:
        errors["role"] = "Choose a role."
    roles = {member.email: member for member in await visit.store.people.members(visit.team.record.id)}
    if member := roles.get(email):
        errors["email"] = f"They are {'invited' if member.invited else 'here'} already, as {member.role}."
    if errors:
        return await _page(visit, visit.form, errors)
    person = await visit.store.people.add(email, name)
    entry = visit.entry("member.invite", email, role)
    await visit.store.people.set_role(person.id, visit.team.record.id, role, entry)
    return await _hand_over(visit, person, "invite")


async def make_link(visit: Visit) -> Answer:
    """For who forgot the password, or lost the invitation."""
    member = await _member(visit)
    person = await visit.store.people.get(member.id)
    if person is None:
        raise Gone
    if not member.invited and not await _may_reset(visit, person):
        return Redirect(f"{visit.base}/team", f"{person.email} is in other teams too: ask an operator for the link.")
    return await _hand_over(visit, person, "invite" if member.invited else "reset")


async def set_role(visit: Visit) -> Answer:
    member, role = await _member(visit), visit.form.get("role", "")
    if role not in ROLES:
        raise Gone
    entry = visit.entry("member.role", member.email, f"{member.role} → {role}")
    done = await visit.store.people.set_role(member.id, visit.team.record.id, role, entry)
    return Redirect(f"{visit.base}/team", f"{member.email} is now {role}.") if done else await _refused(visit)


async def remove(visit: Visit) -> Answer:
    member = await _member(visit)
    entry = visit.entry("member.remove", member.email, member.role)
    done = await visit.store.people.set_role(member.id, visit.team.record.id, None, entry)
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


async def _may_reset(visit: Visit, person: Person) -> bool:
    """A new password is the whole account: an owner gives one only to who is in no other team and no operator."""
    elsewhere = set(await visit.store.people.roles(person.id)) - {visit.team.record.id}
    return visit.may("operator") or not (person.operator or elsewhere)


async def _member(visit: Visit) -> Member:
    members = await visit.store.people.members(visit.team.record.id)
    found = next((member for member in members if member.id == visit.params["person"]), None)
    if found is None:
        raise Gone
    return found


async def _hand_over(visit: Visit, person: Person, purpose: str) -> Answer:
    whole = purpose == "reset" and visit.may("operator")  # whatever teams the person is in
    made = Link(person.id, purpose, "" if whole else visit.team.record.id)
    try:
        link = await hand_over(visit, person, made, visit.entry(f"link.{purpose}", person.email))
    except Refusal as refusal:
        return await _page(visit, errors={"members": refusal.message})
    if not link:
        return Redirect(f"{visit.base}/team", told(person))
    return await _page(visit, handed=(link, purpose, person))


async def _refused(visit: Visit) -> Page:
    return await _page(visit, errors={"members": LAST_OWNER})


async def _page(
    visit: Visit,
    form: dict[str, str] | None = None,
    errors: dict[str, str] | None = None,
    handed: tuple[str, str, Person] | None = None,
) -> Page:
    members = await visit.store.people.members(visit.team.record.id)
    values = {
        "members": members,
        "form": form or {},
        "errors": errors or {},
        "handed": handed,
        "roles": ROLES,
    }
    return Page("members.html", values, 400 if errors else 200)
