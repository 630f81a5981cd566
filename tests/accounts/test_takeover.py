"""Twenty ways to somebody else's account: by an invitation, a reset or a kept link. None leads there.

Mallory owns team A, Bea owns team B, Root runs the instance. In each journey Mallory tries to see what is team B's or
the operators', or to be signed in as somebody who is not his to be.
"""

from collections.abc import Awaitable, Callable

import pytest

from heliograph.dashboard.page_request import COOKIE
from heliograph.dashboard.totp import STEP_MS, code_at
from heliograph.domain.audit.actor import COMMAND_LINE
from tests.accounts.house import PASSWORD, Browser, House

pytestmark = pytest.mark.anyio

VICTIM, COLLEAGUE, KNOWN = "victim@example.com", "colleague@example.com", "mallory knows this"
A, B, OPERATOR = "/dashboard/teams/team_a", "/dashboard/teams/team_b", "/dashboard/operator"
LOOT = (B, f"{B}/keys", f"{B}/team", OPERATOR, f"{OPERATOR}/people")
SECRET = b"12345678901234567890"


class World:
    def __init__(self, house: House, mallory: Browser, bea: Browser, root: Browser) -> None:
        self.house, self.mallory, self.bea, self.root = house, mallory, bea, root

    async def squat(self) -> Browser:
        """Mallory invites a stranger's address and follows the link himself."""
        browser = self.house.browser("198.51.100.1")
        link = await self.invited(self.mallory, A)
        assert (await browser.post(link, password=KNOWN)).status == 303
        assert await browser.sees(A)
        return browser

    async def invited(self, by: Browser, base: str, role: str = "owner") -> str:
        link = (await by.post(f"{base}/team", email=VICTIM, role=role)).link
        assert link
        return link

    async def by_operator(self, what: str, **form: str) -> str:
        id_ = await self.house.id_of(VICTIM)
        link = (await self.root.post(f"{OPERATOR}/people/{id_}/{what}", **form)).link
        assert link
        return link

    async def reset_link(self, email: str = COLLEAGUE) -> str:
        """Made by Mallory while he might, and kept."""
        link = (await self.mallory.post(f"{A}/team/{await self.house.id_of(email)}/link")).link
        assert link
        return link

    async def follow(self, link: str, **form: str) -> Browser:
        browser = self.house.browser("198.51.100.1")
        await browser.post(link, **({"password": KNOWN} | form))
        return browser

    async def with_code(self, email: str) -> None:
        id_ = await self.house.id_of(email)
        sealed = self.house.sealer.seal(SECRET, f"totp/{id_}")
        await self.house.people.set_totp(
            id_, sealed, ["recovery"], 0, COMMAND_LINE.did(at=1, action="on", subject=email)
        )

    async def ticket(self, browser: Browser, password: str = PASSWORD) -> str:
        asked = await browser.sign_in(COLLEAGUE, password)
        return asked.body.partition('name="ticket" value="')[2].partition('"')[0]

    def code(self) -> str:
        return code_at(SECRET, self.house.clock.now() // STEP_MS)

    async def suspend(self, team: str, suspended: bool) -> None:
        form = {"suspended": "yes" if suspended else "no"}
        assert (await self.root.post(f"{OPERATOR}/teams/{team}/suspend", **form)).status == 303


@pytest.fixture
async def world(house: House) -> World:
    mallory = await house.person("mallory@example.com", team_a="owner")
    bea = await house.person("bea@example.com", team_b="owner")
    root = await house.person("root@example.com", operator=True)
    await house.person(COLLEAGUE, team_a="developer")
    return World(house, mallory, bea, root)


# -- an account that was taken before its owner came ---------------------------------------------------------


async def another_team_invites(world: World) -> Browser:
    squatter = await world.squat()
    await world.invited(world.bea, B)
    return squatter


async def and_he_accepts_it_without_its_link(world: World) -> Browser:
    squatter = await another_team_invites(world)
    await squatter.post("/dashboard/invitations", team="team_b", answer="accept")
    return squatter


async def and_he_signs_in_anew(world: World) -> Browser:
    await another_team_invites(world)
    squatter = world.house.browser()
    await squatter.sign_in(VICTIM, KNOWN)
    await squatter.post("/dashboard/invitations", team="team_b", answer="accept")
    return squatter


async def an_operator_puts_it_into_a_team(world: World) -> Browser:
    squatter = await world.squat()
    await world.by_operator("role", team="team_b", role="owner")
    await squatter.post("/dashboard/invitations", team="team_b", answer="accept")
    return squatter


async def an_operator_makes_it_one(world: World) -> Browser:
    squatter = await world.squat()
    await world.by_operator("operator", operator="yes")
    await squatter.post("/dashboard/invitations", team="", answer="accept")
    return squatter


async def the_command_line_makes_it_one(world: World) -> Browser:
    squatter = await world.squat()
    await world.house.offer(VICTIM, **{"": "operator", "team_b": "owner"})
    return squatter


async def a_password_that_he_handed_over(world: World) -> Browser:
    """The stranger uses it without a thought, and joins another team."""
    await world.squat()
    link = await world.invited(world.bea, B)
    honest = world.house.browser()
    await honest.sign_in(VICTIM, KNOWN)
    assert (await honest.post(link)).status == 400
    assert (await honest.post(link, password=KNOWN)).status == 400  # not the same again
    assert (await honest.post(link, password=PASSWORD)).status == 303
    assert await honest.sees(B)
    squatter = world.house.browser()
    await squatter.sign_in(VICTIM, KNOWN)
    return squatter


async def a_session_that_he_left_open(world: World) -> Browser:
    squatter = await world.squat()
    link = await world.invited(world.bea, B)
    honest = world.house.browser()
    await honest.sign_in(VICTIM, KNOWN)
    assert (await honest.post(link, password=PASSWORD)).status == 303
    return squatter


# -- links that were kept ------------------------------------------------------------------------------------


async def an_invitation_kept_until_another_team_took_them_in(world: World) -> Browser:
    kept = await world.invited(world.mallory, A)
    assert (await world.house.browser().post(await world.invited(world.bea, B), password=PASSWORD)).status == 303
    return await world.follow(kept)


async def an_invitation_kept_until_they_ran_the_instance(world: World) -> Browser:
    kept = await world.invited(world.mallory, A)
    link = await world.by_operator("operator", operator="yes")
    assert (await world.house.browser().post(link, password=PASSWORD)).status == 303
    return await world.follow(kept)


async def an_invitation_that_was_taken_back_and_given_anew(world: World) -> Browser:
    kept = await world.invited(world.bea, B, "viewer")
    id_ = await world.house.id_of(VICTIM)
    await world.bea.post(f"{B}/team/{id_}/remove")
    await world.invited(world.bea, B)
    return await world.follow(kept)


async def a_reset_kept_until_they_owned_another_team(world: World) -> Browser:
    kept = await world.reset_link()
    await world.bea.post(f"{B}/team", email=COLLEAGUE, role="owner")
    colleague = world.house.browser()
    await colleague.sign_in(COLLEAGUE)
    assert (await colleague.post("/dashboard/invitations", team="team_b", answer="accept")).status == 303
    assert await colleague.sees(f"{B}/keys")
    return await world.follow(kept)


async def a_reset_kept_by_who_is_no_owner_any_more(world: World) -> Browser:
    kept = await world.reset_link()
    await world.root.post(
        f"{OPERATOR}/people/{await world.house.id_of('mallory@example.com')}/role", team="team_a", role=""
    )
    assert await world.mallory.sees(A)  # he was the last owner, who stays
    await world.house.person("next@example.com", team_a="owner")
    await world.root.post(
        f"{OPERATOR}/people/{await world.house.id_of('mallory@example.com')}/role", team="team_a", role=""
    )
    assert not await world.mallory.sees(A)
    return await world.follow(kept)


async def a_reset_kept_by_who_is_no_operator_any_more(world: World) -> Browser:
    eve = await world.house.person("eve@example.com", operator=True)
    kept = (await eve.post(f"{OPERATOR}/people/{await world.house.id_of('bea@example.com')}/link")).link
    assert kept
    await world.root.post(f"{OPERATOR}/people/{await world.house.id_of('eve@example.com')}/operator")
    return await world.follow(kept)


async def a_reset_kept_until_they_changed_the_password(world: World) -> Browser:
    kept = await world.reset_link()
    colleague = world.house.browser()
    await colleague.sign_in(COLLEAGUE)
    await colleague.post("/dashboard/account/password", old=PASSWORD, new=PASSWORD * 2)
    return await world.follow(kept)


async def a_reset_kept_until_there_was_a_code(world: World) -> Browser:
    kept = await world.reset_link()
    await world.with_code(COLLEAGUE)
    return await world.follow(kept, code="recovery")


async def a_reset_that_was_used(world: World) -> Browser:
    kept = await world.reset_link()
    assert (await world.house.browser().post(kept, password=PASSWORD)).status == 303
    return await world.follow(kept)


async def a_reset_of_a_team_that_was_suspended_since(world: World) -> Browser:
    kept = await world.reset_link()
    await world.suspend("team_a", True)
    browser = await world.follow(kept)
    assert not browser.cookies.get(COOKIE)
    await world.suspend("team_a", False)
    return await world.follow(kept)


async def a_link_of_somebody_removed_and_added_again(world: World) -> Browser:
    kept = await world.reset_link()
    id_ = await world.house.id_of(COLLEAGUE)
    await world.root.post(f"{OPERATOR}/people/{id_}/remove")
    await world.house.person(COLLEAGUE, team_a="developer")
    return await world.follow(kept)


# -- links of others -----------------------------------------------------------------------------------------


async def another_teams_link_to_choose_a_password_by(world: World) -> Browser:
    """Bea's colleague has an account; Mallory found the link by which it is invited to team B."""
    await world.house.person(VICTIM, team_b="viewer")
    found = await world.by_operator("operator", operator="yes")
    return await world.follow(found)


async def another_persons_link_with_his_own_account(world: World) -> Browser:
    await world.house.person(VICTIM)
    found = await world.invited(world.bea, B)
    assert (await world.mallory.get(found)).status == 200
    await world.mallory.post(found, password=KNOWN)
    return world.mallory


# -- the ticket between password and code --------------------------------------------------------------------


async def a_ticket_kept_until_they_changed_the_password(world: World) -> Browser:
    await world.with_code(COLLEAGUE)
    browser = world.house.browser("198.51.100.1")
    ticket = await world.ticket(browser)
    id_ = await world.house.id_of(COLLEAGUE)
    await world.house.people.set_password(id_, "argon2id…", COMMAND_LINE.did(at=1, action="x", subject="x"))
    await browser.post("/dashboard/sign-in", ticket=ticket, code=world.code())
    return browser


async def a_ticket_that_was_used(world: World) -> Browser:
    await world.with_code(COLLEAGUE)
    honest, browser = world.house.browser(), world.house.browser("198.51.100.1")
    ticket = await world.ticket(honest)
    assert (await honest.post("/dashboard/sign-in", ticket=ticket, code=world.code())).status == 303
    late = await browser.post("/dashboard/sign-in", ticket=ticket, code="recovery")
    assert "This sign-in has ended. Sign in again." in late.body
    return browser


async def a_ticket_as_a_link(world: World) -> Browser:
    await world.with_code(COLLEAGUE)
    return await world.follow(f"/dashboard/link/{await world.ticket(world.house.browser())}")


Journey = Callable[[World], Awaitable[Browser]]
SQUATTED: list[Journey] = [
    another_team_invites,
    and_he_accepts_it_without_its_link,
    and_he_signs_in_anew,
    an_operator_puts_it_into_a_team,
    an_operator_makes_it_one,
    the_command_line_makes_it_one,
    a_password_that_he_handed_over,
    a_session_that_he_left_open,
    another_persons_link_with_his_own_account,
]
NOT_HIS: list[Journey] = [
    an_invitation_kept_until_another_team_took_them_in,
    an_invitation_kept_until_they_ran_the_instance,
    an_invitation_that_was_taken_back_and_given_anew,
    a_reset_kept_until_they_owned_another_team,
    a_reset_kept_by_who_is_no_owner_any_more,
    a_reset_kept_by_who_is_no_operator_any_more,
    a_reset_kept_until_they_changed_the_password,
    a_reset_kept_until_there_was_a_code,
    a_reset_that_was_used,
    a_reset_of_a_team_that_was_suspended_since,
    a_link_of_somebody_removed_and_added_again,
    another_teams_link_to_choose_a_password_by,
    a_ticket_kept_until_they_changed_the_password,
    a_ticket_that_was_used,
    a_ticket_as_a_link,
]


@pytest.mark.parametrize("journey", SQUATTED, ids=lambda journey: journey.__name__)
async def test_an_account_gives_nothing_elsewhere(world: World, journey: Journey) -> None:
    browser = await journey(world)
    assert [path for path in LOOT if await browser.sees(path)] == []


@pytest.mark.parametrize("journey", NOT_HIS, ids=lambda journey: journey.__name__)
async def test_nobody_else_is_signed_in(world: World, journey: Journey) -> None:
    browser = await journey(world)
    assert not browser.cookies.get(COOKIE)
    assert [path for path in (A, *LOOT) if await browser.sees(path)] == []
