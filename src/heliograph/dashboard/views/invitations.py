"""Roles that a signed-in person was offered: accepted or declined.

Only a proven account answers here. Any other may be held by whoever made its first link: it needs the link of the team
that invites, and to accept also a new password.
"""

from heliograph.dashboard.page_request import Answer, Gone, Redirect, Visit
from heliograph.manage import people
from heliograph.texts.dashboard_links import HOME, of_team


async def answer(visit: Visit) -> Answer:
    who, team, said = visit.person, visit.form.get("team", ""), visit.form.get("answer")
    role, accepts = (await offered(visit)).get(team), said == "accept"
    if role is None or said not in ("accept", "decline"):
        raise Gone
    if not await people.answer(visit.store, visit.actor, who.person, who.email, team, role, accepts=accepts):
        raise Gone
    if not accepts:
        return Redirect(HOME, "The invitation is declined.")
    return Redirect(of_team(team) if team else HOME, "Welcome.")


async def offered(visit: Visit) -> dict[str, str]:
    """Return what the person may answer without a link: team → role; an empty team: to run the instance."""
    person = await visit.store.people.get(visit.person.person)
    pending = await visit.store.people.invitations(person.id) if person and person.proven else {}
    return {team: role for team, role in pending.items() if not team or team in visit.setup.teams}
