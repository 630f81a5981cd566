"""Account takeover attempts with an invitation, a reset or an old link. All of them fail.

Mallory owns team A, Bea owns team B, Root runs the instance. In each journey Mallory tries to see what is team B's or
the operators', or to sign in as another user.
"""

from collections.abc import Awaitable, Callable

import pytest

from heliograph.dashboard.page_request import SESSION_COOKIE
from heliograph.dashboard.totp import TIME_STEP_MS, code_at
from heliograph.domain.audit.actor import COMMAND_LINE
from tests.accounts.house import PASSWORD, Browser, Instance

pytestmark = pytest.mark.anyio

VICTIM, COLLEAGUE, KNOWN = "victim@example.com", "colleague@example.com", "mallory knows this"
A, B, OPERATOR = "/dashboard/teams/team_a", "/dashboard/teams/team_b", "/dashboard/operator"
LOOT = (B, f"{B}/keys", f"{B}/team", OPERATOR, f"{OPERATOR}/people")
SECRET = b"12345678901234567890"


class World:
    def __init__(self, house: Instance, mallory: Browser, bea: Browser, root: Browser) -> None:
        self.house, self.mallory, self.bea, self.root = house, mallory, bea, root

    async def create_attacker_account(self) -> Browser:
        """Mallory invites a victim's address and uses the link himself."""
        browser = self.house.browser("198.51.100.1")
        link = await self.invite(self.mallory, A)
        assert (await browser.post(link, password=KNOWN)).status == 303
        assert await browser.can_see(A)
        return browser

    async def invite(self, by: Browser, base: str, role: str = "owner") -> str:
        link = (await by.post(f"{base}/team", email=VICTIM, role=role)).link
        assert link
        return link

    async def change_as_operator(self, what: str, **form: str) -> str:
        id_ = await self.house.id_of(VICTIM)
        link = (await self.root.post(f"{OPERATOR}/people/{id_}/{what}", **form)).link
        assert link
        return link

    async def reset_link(self, email: str = COLLEAGUE) -> str:
        """Return a reset link that Mallory created while he was allowed to."""
        link = (await self.mallory.post(f"{A}/team/{await self.house.id_of(email)}/link")).link
        assert link
        return link

    async def follow(self, link: str, **form: str) -> Browser:
        browser = self.house.browser("198.51.100.1")
        await browser.post(link, **({"password": KNOWN} | form))
        return browser

    async def enable_totp(self, email: str) -> None:
        id_ = await self.house.id_of(email)
        sealed = self.house.sealer.encrypt(SECRET, f"totp/{id_}")
        await self.house.people.set_totp(
            id_, sealed, ["recovery"], 0, COMMAND_LINE.audit_entry(at=1, action="on", subject=email)
        )

    async def get_ticket(self, browser: Browser, password: str = PASSWORD) -> str:
        response = await browser.sign_in(COLLEAGUE, password)
        return response.body.partition('name="ticket" value="')[2].partition('"')[0]

    def current_code(self) -> str:
        return code_at(SECRET, self.house.clock.now() // TIME_STEP_MS)

    async def suspend_team(self, team: str, suspended: bool) -> None:
        form = {"suspended": "yes" if suspended else "no"}
        assert (await self.root.post(f"{OPERATOR}/teams/{team}/suspend", **form)).status == 303


@pytest.fixture
async def world(house: Instance) -> World:
    mallory = await house.person("mallory@example.com", team_a="owner")
    bea = await house.person("bea@example.com", team_b="owner")
    root = await house.person("root@example.com", operator=True)
    await house.person(COLLEAGUE, team_a="developer")
    return World(house, mallory, bea, root)


# -- account created by an attacker before its owner ---------------------------------------------------------


async def attacker_team_invites(world: World) -> Browser:
    squatter = await world.create_attacker_account()
    await world.invite(world.bea, B)
    return squatter


async def attacker_accepts_without_link(world: World) -> Browser:
    squatter = await attacker_team_invites(world)
    await squatter.post("/dashboard/invitations", team="team_b", answer="accept")
    return squatter


async def attacker_signs_in_again(world: World) -> Browser:
    await attacker_team_invites(world)
    squatter = world.house.browser()
    await squatter.sign_in(VICTIM, KNOWN)
    await squatter.post("/dashboard/invitations", team="team_b", answer="accept")
    return squatter


async def operator_adds_account_to_team(world: World) -> Browser:
    squatter = await world.create_attacker_account()
    await world.change_as_operator("role", team="team_b", role="owner")
    await squatter.post("/dashboard/invitations", team="team_b", answer="accept")
    return squatter


async def operator_makes_account_operator(world: World) -> Browser:
    squatter = await world.create_attacker_account()
    await world.change_as_operator("operator", operator="yes")
    await squatter.post("/dashboard/invitations", team="", answer="accept")
    return squatter


async def command_line_makes_account_operator(world: World) -> Browser:
    squatter = await world.create_attacker_account()
    await world.house.invite(VICTIM, **{"": "operator", "team_b": "owner"})
    return squatter


async def password_chosen_by_attacker(world: World) -> Browser:
    """The victim keeps using the attacker's password, and joins another team."""
    await world.create_attacker_account()
    link = await world.invite(world.bea, B)
    honest = world.house.browser()
    await honest.sign_in(VICTIM, KNOWN)
    assert (await honest.post(link)).status == 400
    assert (await honest.post(link, password=KNOWN)).status == 400  # the same password is rejected
    assert (await honest.post(link, password=PASSWORD)).status == 303
    assert await honest.can_see(B)
    squatter = world.house.browser()
    await squatter.sign_in(VICTIM, KNOWN)
    return squatter


async def session_left_open_by_attacker(world: World) -> Browser:
    squatter = await world.create_attacker_account()
    link = await world.invite(world.bea, B)
    honest = world.house.browser()
    await honest.sign_in(VICTIM, KNOWN)
    assert (await honest.post(link, password=PASSWORD)).status == 303
    return squatter


# -- old links -----------------------------------------------------------------------------------------------


async def old_invitation_after_joining_another_team(world: World) -> Browser:
    link = await world.invite(world.mallory, A)
    assert (await world.house.browser().post(await world.invite(world.bea, B), password=PASSWORD)).status == 303
    return await world.follow(link)


async def old_invitation_after_becoming_operator(world: World) -> Browser:
    old_link = await world.invite(world.mallory, A)
    link = await world.change_as_operator("operator", operator="yes")
    assert (await world.house.browser().post(link, password=PASSWORD)).status == 303
    return await world.follow(old_link)


async def withdrawn_and_renewed_invitation(world: World) -> Browser:
    link = await world.invite(world.bea, B, "viewer")
    id_ = await world.house.id_of(VICTIM)
    await world.bea.post(f"{B}/team/{id_}/remove")
    await world.invite(world.bea, B)
    return await world.follow(link)


async def old_reset_after_owning_another_team(world: World) -> Browser:
    link = await world.reset_link()
    await world.bea.post(f"{B}/team", email=COLLEAGUE, role="owner")
    colleague = world.house.browser()
    await colleague.sign_in(COLLEAGUE)
    assert (await colleague.post("/dashboard/invitations", team="team_b", answer="accept")).status == 303
    assert await colleague.can_see(f"{B}/keys")
    return await world.follow(link)


async def old_reset_of_former_owner(world: World) -> Browser:
    link = await world.reset_link()
    await world.root.post(
        f"{OPERATOR}/people/{await world.house.id_of('mallory@example.com')}/role", team="team_a", role=""
    )
    assert await world.mallory.can_see(A)  # the last owner cannot be removed
    await world.house.person("next@example.com", team_a="owner")
    await world.root.post(
        f"{OPERATOR}/people/{await world.house.id_of('mallory@example.com')}/role", team="team_a", role=""
    )
    assert not await world.mallory.can_see(A)
    return await world.follow(link)


async def old_reset_of_former_operator(world: World) -> Browser:
    eve = await world.house.person("eve@example.com", operator=True)
    link = (await eve.post(f"{OPERATOR}/people/{await world.house.id_of('bea@example.com')}/link")).link
    assert link
    await world.root.post(f"{OPERATOR}/people/{await world.house.id_of('eve@example.com')}/operator")
    return await world.follow(link)


async def old_reset_after_password_change(world: World) -> Browser:
    link = await world.reset_link()
    colleague = world.house.browser()
    await colleague.sign_in(COLLEAGUE)
    await colleague.post("/dashboard/account/password", old=PASSWORD, new=PASSWORD * 2)
    return await world.follow(link)


async def old_reset_after_totp_setup(world: World) -> Browser:
    link = await world.reset_link()
    await world.enable_totp(COLLEAGUE)
    return await world.follow(link, code="recovery")


async def used_reset(world: World) -> Browser:
    link = await world.reset_link()
    assert (await world.house.browser().post(link, password=PASSWORD)).status == 303
    return await world.follow(link)


async def reset_of_suspended_team(world: World) -> Browser:
    link = await world.reset_link()
    await world.suspend_team("team_a", True)
    browser = await world.follow(link)
    assert not browser.cookies.get(SESSION_COOKIE)
    await world.suspend_team("team_a", False)
    return await world.follow(link)


async def old_reset_of_recreated_account(world: World) -> Browser:
    link = await world.reset_link()
    id_ = await world.house.id_of(COLLEAGUE)
    await world.root.post(f"{OPERATOR}/people/{id_}/remove")
    await world.house.person(COLLEAGUE, team_a="developer")
    return await world.follow(link)


# -- links of other users ------------------------------------------------------------------------------------


async def invitation_of_another_team(world: World) -> Browser:
    """Bea's colleague has an account; Mallory found the colleague's invitation link to team B."""
    await world.house.person(VICTIM, team_b="viewer")
    link = await world.change_as_operator("operator", operator="yes")
    return await world.follow(link)


async def invitation_of_another_person(world: World) -> Browser:
    await world.house.person(VICTIM)
    link = await world.invite(world.bea, B)
    assert (await world.mallory.get(link)).status == 200
    await world.mallory.post(link, password=KNOWN)
    return world.mallory


# -- the ticket between password and code --------------------------------------------------------------------


async def old_ticket_after_password_change(world: World) -> Browser:
    await world.enable_totp(COLLEAGUE)
    browser = world.house.browser("198.51.100.1")
    ticket = await world.get_ticket(browser)
    id_ = await world.house.id_of(COLLEAGUE)
    await world.house.people.set_password(id_, "argon2id…", COMMAND_LINE.audit_entry(at=1, action="x", subject="x"))
    await browser.post("/dashboard/sign-in", ticket=ticket, code=world.current_code())
    return browser


async def used_ticket(world: World) -> Browser:
    await world.enable_totp(COLLEAGUE)
    honest, browser = world.house.browser(), world.house.browser("198.51.100.1")
    ticket = await world.get_ticket(honest)
    assert (await honest.post("/dashboard/sign-in", ticket=ticket, code=world.current_code())).status == 303
    late = await browser.post("/dashboard/sign-in", ticket=ticket, code="recovery")
    assert "This sign-in has expired. Sign in again." in late.body
    return browser


async def ticket_as_link(world: World) -> Browser:
    await world.enable_totp(COLLEAGUE)
    return await world.follow(f"/dashboard/link/{await world.get_ticket(world.house.browser())}")


Journey = Callable[[World], Awaitable[Browser]]
SQUATTED: list[Journey] = [
    attacker_team_invites,
    attacker_accepts_without_link,
    attacker_signs_in_again,
    operator_adds_account_to_team,
    operator_makes_account_operator,
    command_line_makes_account_operator,
    password_chosen_by_attacker,
    session_left_open_by_attacker,
    invitation_of_another_person,
]
NOT_HIS: list[Journey] = [
    old_invitation_after_joining_another_team,
    old_invitation_after_becoming_operator,
    withdrawn_and_renewed_invitation,
    old_reset_after_owning_another_team,
    old_reset_of_former_owner,
    old_reset_of_former_operator,
    old_reset_after_password_change,
    old_reset_after_totp_setup,
    used_reset,
    reset_of_suspended_team,
    old_reset_of_recreated_account,
    invitation_of_another_team,
    old_ticket_after_password_change,
    used_ticket,
    ticket_as_link,
]


@pytest.mark.parametrize("journey", SQUATTED, ids=lambda journey: journey.__name__)
async def test_takeover_attempt_gives_no_access_elsewhere(world: World, journey: Journey) -> None:
    browser = await journey(world)
    assert [path for path in LOOT if await browser.can_see(path)] == []


@pytest.mark.parametrize("journey", NOT_HIS, ids=lambda journey: journey.__name__)
async def test_takeover_attempt_creates_no_session(world: World, journey: Journey) -> None:
    browser = await journey(world)
    assert not browser.cookies.get(SESSION_COOKIE)
    assert [path for path in (A, *LOOT) if await browser.can_see(path)] == []
