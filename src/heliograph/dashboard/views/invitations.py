"""Lets a signed-in user accept or decline an offered role.

Only a verified account can answer here. An unverified account may be controlled by the creator of its first link: its
user needs the link of the inviting team, and a new password to accept.
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
    """Return the invitations that the user can answer without a link: team → role. An empty team means the instance."""
    person = await visit.store.people.get(visit.person.person)
    pending = await visit.store.people.invitations(person.id) if person and person.proven else {}
    return {team: role for team, role in pending.items() if not team or team in visit.setup.teams}
