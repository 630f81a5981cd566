"""Lets a signed-in user accept or decline an offered role, if the account is verified.

An unverified account may be controlled by the creator of its first link. Its user must open the link of the inviting
team, and set a new password to accept.
"""

from heliograph.dashboard.page_request import PageNotFound, PageRequest, PageResponse, Redirect
from heliograph.manage import people
from heliograph.texts.dashboard_links import HOME, team_page


async def answer(request: PageRequest) -> PageResponse:
    user, team, answer_value = request.user, request.form.get("team", ""), request.form.get("answer")
    role, is_accepted = (await pending_invitations(request)).get(team), answer_value == "accept"
    if role is None or answer_value not in ("accept", "decline"):
        raise PageNotFound
    if not await people.answer_invitation(
        request.store, request.actor, user.person, user.email, team, role, accepts=is_accepted
    ):
        raise PageNotFound
    if not is_accepted:
        return Redirect(HOME, "Invitation declined.")
    return Redirect(team_page(team) if team else HOME, "Welcome.")


async def pending_invitations(request: PageRequest) -> dict[str, str]:
    """Return team (empty: the instance) → offered role, for invitations that can be answered without a link."""
    person = await request.store.people.get(request.user.person)
    invitations = await request.store.people.list_invitations(person.id) if person and person.proven else {}
    return {team: role for team, role in invitations.items() if not team or team in request.setup.teams}
