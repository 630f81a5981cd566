"""Roles that a signed-in person was offered: accepted or declined.

Only a proven account accepts here. Any other may be held by whoever made its first link: it needs the link of the team
that invites, and a new password.
"""

from msgspec.structs import replace

from heliograph.dashboard.visit import Answer, Gone, Redirect, Visit


async def answer(visit: Visit) -> Answer:
    person, team = visit.person, visit.form.get("team", "")
    role = (await visit.people.invitations(person.person)).get(team)
    if role is None or (team and team not in visit.setup.teams):
        raise Gone
    entry = visit.entry("member.decline" if team else "operator.decline", person.email, role)
    entry = replace(entry, team=team or None)
    if visit.form.get("answer") != "accept":
        await visit.people.decline(person.person, team, entry)
        return Redirect("/dashboard", "The invitation is declined.")
    if not await visit.people.accept(person.person, [team], entry):
        raise Gone
    return Redirect(f"/dashboard/teams/{team}" if team else "/dashboard", "Welcome.")
