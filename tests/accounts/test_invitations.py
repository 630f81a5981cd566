"""Invitations: shown or mailed, accepted or declined, and their audit entries."""

import pytest

from heliograph.dashboard.passwords import ATTEMPTS_MAX
from heliograph.domain.accounts.people import Link
from heliograph.domain.delivery.outcome import Accepted, Refused
from heliograph.domain.setup import records
from heliograph.domain.setup.snapshot import to_row
from tests.accounts.house import LINK, PASSWORD, Instance
from tests.setup_helpers import set_up

pytestmark = pytest.mark.anyio

A, B, OPERATOR = "/dashboard/teams/team_a", "/dashboard/teams/team_b", "/dashboard/operator"
NEW, ADA = "new@example.com", "ada@example.com"


async def roles_and_invitations(house: Instance, email: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the user's accepted roles and pending invitations."""
    id_ = await house.id_of(email)
    return await house.people.get_roles(id_), await house.people.list_invitations(id_)


async def test_invited_new_person_sets_password_and_is_signed_in(house: Instance) -> None:
    owner = await house.person("owner@example.com", team_a="owner")
    response = await owner.post(f"{A}/team", email=NEW, role="viewer")
    assert "This instance can't send email yet" in response.body
    assert "can set the password and accept the invitation" in response.body
    assert await roles_and_invitations(house, NEW) == ({}, {"team_a": "viewer"})
    guest = house.browser()
    assert (
        "You are invited to join the team <strong>The team_a</strong> as viewer"
        in (await guest.get(response.link)).body
    )
    assert (await guest.post(response.link, password=PASSWORD)).status == 303
    assert await roles_and_invitations(house, NEW) == ({"team_a": "viewer"}, {})
    assert await guest.can_see(A)
    assert (await house.browser().get(response.link)).status == 404
    lines = [(line.action, line.actor) for line in await house.store.audit.list_rows("team_a")]
    assert lines[:2] == [
        ("member.accept", NEW),
        ("member.invite", "owner@example.com"),
    ]


async def test_invited_person_with_account_signs_in_and_accepts(house: Instance) -> None:
    """An operator created the account, so accepting needs no new password."""
    ada, bea = await house.person(ADA, team_a="viewer"), await house.person("bea@example.com", team_b="owner")
    link = (await bea.post(f"{B}/team", email=ADA, role="developer")).link
    fresh = house.browser()
    response = await fresh.get(link)
    assert (response.status, response.location) == (303, f"/dashboard/sign-in?next={link}")
    assert (await fresh.post(response.location, email=ADA, password=PASSWORD)).location == link
    assert "New password" not in (await fresh.get(link)).body
    assert (await fresh.post(link)).location == B
    assert await roles_and_invitations(house, ADA) == ({"team_a": "viewer", "team_b": "developer"}, {})
    assert await ada.can_see(B)  # the other session stays valid


@pytest.mark.parametrize(
    ("answer", "has"), [("accept", {"team_a": "viewer", "team_b": "developer"}), ("decline", {"team_a": "viewer"})]
)
async def test_invitation_is_accepted_or_declined_on_start_page(
    house: Instance, answer: str, has: dict[str, str]
) -> None:
    ada, bea = await house.person(ADA, team_a="viewer"), await house.person("bea@example.com", team_b="owner")
    link = (await bea.post(f"{B}/team", email=ADA, role="developer")).link
    assert "The team_b invites you as developer" in (await ada.get("/dashboard")).body
    assert (await ada.post("/dashboard/invitations", team="team_b", answer=answer)).status == 303
    assert await roles_and_invitations(house, ADA) == (has, {})
    assert (await ada.get(link)).status == 404
    assert (await house.store.audit.list_rows("team_b"))[0].action == f"member.{answer}"


async def test_invalid_invitation_answer_is_ignored(house: Instance) -> None:
    ada, bea = await house.person(ADA, team_a="viewer"), await house.person("bea@example.com", team_b="owner")
    await bea.post(f"{B}/team", email=ADA, role="developer")
    for form in ({}, {"answer": ""}, {"answer": "no"}):
        assert (await ada.post("/dashboard/invitations", team="team_b", **form)).status == 404
    assert await roles_and_invitations(house, ADA) == ({"team_a": "viewer"}, {"team_b": "developer"})


@pytest.mark.parametrize("answer", ["accept", "decline"])
async def test_unproven_person_answers_invitation_only_by_link(house: Instance, answer: str) -> None:
    owner, bea = (
        await house.person("owner@example.com", team_a="owner"),
        await house.person("bea@example.com", team_b="owner"),
    )
    guest = house.browser()
    await guest.post((await owner.post(f"{A}/team", email=NEW, role="viewer")).link, password=PASSWORD)
    link = (await bea.post(f"{B}/team", email=NEW, role="developer")).link
    assert (await guest.get("/dashboard")).location == A  # the user's only team, without data of the other team
    assert (await guest.post("/dashboard/invitations", team="team_b", answer=answer)).status == 404
    assert await roles_and_invitations(house, NEW) == ({"team_a": "viewer"}, {"team_b": "developer"})
    form = {"decline": "yes"} if answer == "decline" else {"password": PASSWORD * 2}
    assert (await guest.post(link, **form)).status == 303
    assert ("team_b" in (await roles_and_invitations(house, NEW))[0]) is (answer == "accept")
    assert (await roles_and_invitations(house, NEW))[1] == {}


async def test_invited_operator_has_role_after_accepting(house: Instance) -> None:
    root = await house.person("root@example.com", operator=True)
    ada = await house.person(ADA)
    id_ = await house.id_of(ADA)
    response = await root.post(f"{OPERATOR}/people/{id_}/operator", operator="yes")
    assert "accepted by someone signed in as ada@example.com" in response.body
    assert not await ada.can_see(OPERATOR)
    assert (await ada.post(response.link)).status == 303
    assert await ada.can_see(OPERATOR)
    assert (await root.post(f"{OPERATOR}/people/{id_}/operator")).status == 303
    assert not await ada.can_see(OPERATOR)


async def test_invitation_is_declined_by_link(house: Instance) -> None:
    owner = await house.person("owner@example.com", team_a="owner")
    link = (await owner.post(f"{A}/team", email=NEW, role="viewer")).link
    assert (await house.browser().post(link, decline="yes")).status == 303
    assert await roles_and_invitations(house, NEW) == ({}, {})


# -- by mail -------------------------------------------------------------------------------------------------


async def test_inviter_never_sees_link_when_mail_is_configured(house: Instance) -> None:
    await house.send_mail()
    owner, root = (
        await house.person("owner@example.com", team_a="owner"),
        await house.person("root@example.com", operator=True),
    )
    answers = [
        await owner.post(f"{A}/team", email=NEW, role="viewer"),
        await owner.post(f"{A}/team/{await house.id_of(NEW)}/link"),
        await root.post(f"{OPERATOR}/people", email=ADA, operator="yes"),
        await root.post(f"{OPERATOR}/people/{await house.id_of('owner@example.com')}/link"),
    ]
    assert [(response.status, response.link) for response in answers] == [(303, "")] * 4
    mails = house.post.mails
    assert [mail.to for mail in mails] == [[NEW], [NEW], [ADA], ["owner@example.com"]]
    assert [mail.subject for mail in mails] == [
        *["You're invited to The team_a on Heliograph"] * 2,
        "You're invited to Heliograph",
        "Reset your Heliograph password",
    ]
    assert all(set(LINK.findall(mail.html or "")) == set(LINK.findall(mail.text or "")) for mail in mails)
    first, again, _, reset = (LINK.findall(mail.text or "")[0] for mail in mails)
    guest = house.browser()
    assert (await guest.post(first, password=PASSWORD)).status == 404  # only the second link is valid
    assert (await guest.post(again, password=PASSWORD)).status == 303
    person = await house.people.find(NEW)
    assert person
    assert person.proven
    assert (await guest.post(reset, password=PASSWORD * 2)).status == 303


async def test_invitation_mail_contains_no_text_from_team(house: Instance) -> None:
    await house.send_mail()
    team = records.TeamRecord(ref=11, id="team_a", name="Your bank https://evil.test <b>now</b>")
    await set_up(house.store, rows=[to_row("team", "team_a", team, "team_a")])
    owner = await house.person("owner@example.com", team_a="owner")
    await owner.post(f"{A}/team", email=NEW, role="viewer")
    (mail,) = house.post.mails
    assert mail.subject == "You're invited to Your bank on Heliograph"
    assert "evil" not in f"{mail.text}{mail.html}" and "<b>" not in (mail.html or "")


async def test_rejected_invitation_mail_shows_its_creator_another_link(house: Instance) -> None:
    await house.send_mail()
    owner = await house.person("owner@example.com", team_a="owner")
    house.post.says = Refused(detail={"text": "550 no."})
    refused = await owner.post(f"{A}/team", email=NEW, role="viewer")
    error = "The invitation email was not sent. The email was not accepted: 550 no."
    assert (refused.status, error in refused.body) == (200, True)
    (mailed_link,) = LINK.findall(house.post.mails[0].text or "")
    assert (await house.browser().get(mailed_link)).status == 404
    assert await roles_and_invitations(house, NEW) == ({}, {"team_a": "viewer"})
    assert (await house.browser().post(refused.link, password=PASSWORD)).status == 303
    person = await house.people.find(NEW)
    assert person and not person.proven, "the creator of the link saw it, so it does not verify the address"


async def test_invitation_is_mailed_again_after_a_rejected_mail(house: Instance) -> None:
    await house.send_mail()
    owner = await house.person("owner@example.com", team_a="owner")
    house.post.says = Refused(detail={"text": "550 no."})
    await owner.post(f"{A}/team", email=NEW, role="viewer")
    house.post.says = Accepted(carrier_id="1")
    assert (await owner.post(f"{A}/team/{await house.id_of(NEW)}/link")).status == 303
    (link,) = LINK.findall(house.post.mails[1].text or "")
    assert (await house.browser().get(link)).status == 200


async def test_rejected_reset_mail_does_not_mention_invitation(house: Instance) -> None:
    await house.send_mail()
    root = await house.person("root@example.com", operator=True)
    await house.person(ADA)
    house.post.says = Refused(detail={"text": "550 no."})
    refused = await root.post(f"{OPERATOR}/people/{await house.id_of(ADA)}/link")
    assert "The email was not accepted: 550 no." in refused.body and "is invited" not in refused.body


async def test_invitation_mails_to_one_address_are_limited(house: Instance) -> None:
    await house.send_mail()
    owner = await house.person("owner@example.com", team_a="owner")
    for _ in range(ATTEMPTS_MAX + 2):
        response = await owner.post(f"{A}/team", email=NEW, role="viewer")
        await owner.post(f"{A}/team/{await house.id_of(NEW)}/remove")
    assert len(house.post.mails) == ATTEMPTS_MAX
    assert "The invitation email was not sent. Too many emails were requested." in response.body


async def test_suspended_team_cannot_invite(house: Instance) -> None:
    root = await house.person("root@example.com", operator=True)
    owner = await house.person("owner@example.com", team_a="owner")
    await root.post(f"{OPERATOR}/teams/team_a/suspend", suspended="yes")
    assert (await owner.post(f"{A}/team", email=NEW, role="viewer")).status == 403
    assert await house.people.find(NEW) is None


# -- the ticket between password and code --------------------------------------------------------------------


async def test_wrong_code_at_link_gives_new_ticket_with_same_expiry(house: Instance) -> None:
    person = (await house.invite(ADA)).person
    ticket = await house.people.create_ticket(Link(person.id, "ticket"))
    used = await house.people.use_link(ticket, "ticket")
    assert used
    house.clock.forward(9 * 60_000)
    again = await house.people.create_ticket(used)
    house.clock.forward(60_000)
    assert await house.people.use_link(again, "ticket") is None
