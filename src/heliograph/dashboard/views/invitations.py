"""Roles that a signed-in person was offered: accepted or declined.

Only a proven account answers here. Any other may be held by whoever made its first link: it needs the link of the team
that invites, and to accept also a new password.
"""

from msgspec.structs import replace

from heliograph.dashboard.visit import Answer, Gone, Redirect, Visit


async def answer(visit: Visit) -> Answer:
    person, team, said = visit.person, visit.form.get("team", ""), visit.form.get("answer")
    role = (await offered(visit)).get(team)
    if role is None or said not in ("accept", "decline"):
        raise Gone
    entry = visit.entry("member.decline" if team else "operator.decline", person.email, role)
    entry = replace(entry, team=team or None)
    if said == "decline":
        await visit.store.people.decline(person.person, team, entry)
        return Redirect("/dashboard", "The invitation is declined.")
    if not await visit.store.people.accept(person.person, [team], entry):
        raise Gone
    return Redirect(f"/dashboard/teams/{team}" if team else "/dashboard", "Welcome.")


async def offered(visit: Visit) -> dict[str, str]:
    """What the person may answer without a link: team → role; an empty team: to run the instance."""
    person = await visit.store.people.get(visit.person.person)
    pending = await visit.store.people.invitations(person.id) if person and person.proven else {}
    return {team: role for team, role in pending.items() if not team or team in visit.setup.teams}
