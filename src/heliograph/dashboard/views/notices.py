"""Notice settings: a user's own, and the chat webhook of a team or of the instance."""

from heliograph.dashboard.page_request import Answer, Page, Redirect, Visit, errors_of
from heliograph.domain.operations.notices import INSTANCE
from heliograph.domain.refusals import InvalidRequest
from heliograph.manage import notices, platform_mail
from heliograph.storage.notices import CHAT
from heliograph.texts.dashboard_links import OWN_NOTICES, below_team, of_instance
from heliograph.texts.notices import kinds_of, say

SENT, REMOVED = "A test is on its way to the chat.", "The chat was removed."
SAVED = "The chat is saved. Send a test to see whether it arrives."


# -- user ------------------------------------------------------------------------------------------------------


async def show(visit: Visit) -> Answer:
    person, setup = visit.person, visit.setup
    chosen = await visit.store.notices.choices(person.person)
    groups = [
        {
            "team": team,
            "name": setup.teams[team].record.name if team else "This instance",
            "role": role,
            "kinds": [
                (f"{team}/{kind}", *kinds_of(team)[kind], wanted)
                for kind, wanted in notices.defaults(role, team, chosen).items()
            ],
        }
        for team, role in _own(visit).items()
    ]
    past = [(one, say(one.happening, setup, "")) for one in await visit.store.notices.newest(person.person, 10)]
    values = {
        "groups": groups,
        "past": past,
        "email": person.email,
        "is_simulated": platform_mail.is_simulated(setup, "email"),
    }
    return Page("account_notices.html", values)


async def choose(visit: Visit) -> Answer:
    wanted = {name for name, value in visit.form.items() if value == "yes"}
    person = visit.person
    changed = await notices.choose(visit.store, visit.actor, person.person, person.email, list(_own(visit)), wanted)
    return Redirect(OWN_NOTICES, "Saved." if changed else "Nothing was changed.")


def _own(visit: Visit) -> dict[str, str]:
    """Return the user's role per team; for operators, the instance comes first."""
    teams = {team: role for team, role in visit.roles.items() if team in visit.setup.teams}
    return ({INSTANCE: "operator"} if visit.person.operator else {}) | teams


# -- chat ------------------------------------------------------------------------------------------------------


async def show_chat(visit: Visit, errors: dict[str, str] | None = None) -> Answer:
    team = _team(visit)
    hook = await visit.store.notices.hook(team)
    past = [(one, say(one.happening, visit.setup, "")) for one in await visit.store.notices.newest(CHAT + team)]
    values = {
        "hook": hook,
        "past": past,
        "errors": errors or {},
        "here": _here(visit),
        "kinds": list(kinds_of(team).values()),
        "may_change": visit.may("owner" if team else "operator"),
    }
    return Page("notices.html", values, 400 if errors else 200)


async def set_chat(visit: Visit) -> Answer:
    try:
        await visit.tools.management.chats.set(visit.actor, _team(visit), visit.form.get("url", "").strip())
    except InvalidRequest as refusal:
        return await show_chat(visit, errors_of(refusal))
    return Redirect(_here(visit), SAVED)


async def remove_chat(visit: Visit) -> Answer:
    await visit.tools.management.chats.remove(visit.actor, _team(visit))
    return Redirect(_here(visit), REMOVED)


async def test_chat(visit: Visit) -> Answer:
    try:
        await visit.tools.management.chats.test(visit.actor, _team(visit))
    except InvalidRequest as refusal:
        return await show_chat(visit, errors_of(refusal))
    return Redirect(_here(visit), SENT)


def _team(visit: Visit) -> str:
    return visit.team_found.record.id if visit.team_found else INSTANCE


def _here(visit: Visit) -> str:
    return visit.base + below_team("chat") if visit.team_found else of_instance("chat")
