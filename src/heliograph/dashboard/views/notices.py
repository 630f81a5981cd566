"""Notice settings: a user's own, and the chat webhook of a team or of the instance."""

from heliograph.dashboard.page_request import Page, PageRequest, PageResponse, Redirect, field_errors
from heliograph.domain.operations.notices import INSTANCE_TEAM
from heliograph.domain.refusals import InvalidRequest
from heliograph.manage import notices, platform_mail
from heliograph.storage.notices import CHAT_PREFIX
from heliograph.texts.dashboard_links import ACCOUNT_NOTICES, operator_page, path_in_team
from heliograph.texts.notices import notice_kinds, notice_text

TEST_SENT, CHAT_REMOVED = "Test notice sent to the chat.", "Chat removed."
CHAT_SAVED = "Chat saved. Send a test notice to check that it arrives."


# -- user ------------------------------------------------------------------------------------------------------


async def show(request: PageRequest) -> PageResponse:
    person, setup = request.user, request.setup
    choices = await request.store.notices.choices(person.person)
    groups = [
        {
            "team": team,
            "name": setup.teams[team].record.name if team else "This instance",
            "role": role,
            "kinds": [
                (f"{team}/{kind}", *notice_kinds(team)[kind], is_enabled)
                for kind, is_enabled in notices.effective_preferences(role, team, choices).items()
            ],
        }
        for team, role in _role_by_team(request).items()
    ]
    recent_notices = [
        (notice, notice_text(notice.notice, setup, ""))
        for notice in await request.store.notices.newest(person.person, 10)
    ]
    values = {
        "groups": groups,
        "past": recent_notices,
        "email": person.email,
        "is_simulated": platform_mail.has_only_simulators(setup, "email"),
    }
    return Page("account_notices.html", values)


async def save_choices(request: PageRequest) -> PageResponse:
    enabled = {name for name, value in request.form.items() if value == "yes"}
    person = request.user
    is_changed = await notices.set_preferences(
        request.store, request.actor, person.person, person.email, list(_role_by_team(request)), enabled
    )
    return Redirect(ACCOUNT_NOTICES, "Saved." if is_changed else "No changes.")


def _role_by_team(request: PageRequest) -> dict[str, str]:
    """Return team → the user's role; for operators, the instance comes first."""
    teams = {team: role for team, role in request.roles.items() if team in request.setup.teams}
    return ({INSTANCE_TEAM: "operator"} if request.user.operator else {}) | teams


# -- chat ------------------------------------------------------------------------------------------------------


async def show_chat(request: PageRequest, errors: dict[str, str] | None = None) -> PageResponse:
    team = _team_id(request)
    webhook = await request.store.notices.get_chat_webhook(team)
    recent_notices = [
        (notice, notice_text(notice.notice, request.setup, ""))
        for notice in await request.store.notices.newest(CHAT_PREFIX + team)
    ]
    values = {
        "hook": webhook,
        "past": recent_notices,
        "here": _page_path(request),
        "kinds": list(notice_kinds(team).values()),
        "may_change": request.has_role("owner" if team else "operator"),
    }
    return Page.form("notices.html", values, errors)


async def set_chat(request: PageRequest) -> PageResponse:
    try:
        await request.tools.management.chats.set(request.actor, _team_id(request), request.form.get("url", "").strip())
    except InvalidRequest as refusal:
        return await show_chat(request, field_errors(refusal))
    return Redirect(_page_path(request), CHAT_SAVED)


async def remove_chat(request: PageRequest) -> PageResponse:
    await request.tools.management.chats.remove(request.actor, _team_id(request))
    return Redirect(_page_path(request), CHAT_REMOVED)


async def test_chat(request: PageRequest) -> PageResponse:
    try:
        await request.tools.management.chats.test(request.actor, _team_id(request))
    except InvalidRequest as refusal:
        return await show_chat(request, field_errors(refusal))
    return Redirect(_page_path(request), TEST_SENT)


def _team_id(request: PageRequest) -> str:
    return request.team_or_none.record.id if request.team_or_none else INSTANCE_TEAM


def _page_path(request: PageRequest) -> str:
    return request.team_path + path_in_team("chat") if request.team_or_none else operator_page("chat")
