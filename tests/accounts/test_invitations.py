"""Invitations as they are meant: shown or mailed, accepted or declined; and what is written down of them."""

import pytest

from heliograph.dashboard.passwords import TRIES_MAX
from heliograph.domain.accounts.people import Link
from heliograph.domain.delivery.outcome import Accepted, Refused
from heliograph.domain.setup import records
from heliograph.domain.setup.snapshot import to_row
from tests.accounts.house import LINK, PASSWORD, House
from tests.setup_helpers import set_up

pytestmark = pytest.mark.anyio

A, B, OPERATOR = "/dashboard/teams/team_a", "/dashboard/teams/team_b", "/dashboard/operator"
NEW, ADA = "new@example.com", "ada@example.com"


async def roles(house: House, email: str) -> tuple[dict[str, str], dict[str, str]]:
    """What the person has accepted, and what not yet."""
    id_ = await house.id_of(email)
    return await house.people.roles(id_), await house.people.invitations(id_)


async def test_somebody_new_chooses_a_password_and_is_in(house: House) -> None:
    owner = await house.person("owner@example.com", team_a="owner")
    made = await owner.post(f"{A}/team", email=NEW, role="viewer")
    assert "no email can be sent from here yet" in made.body
    assert "chooses the password of this new account, accepts the invitation" in made.body
    assert await roles(house, NEW) == ({}, {"team_a": "viewer"})
    guest = house.browser()
    assert "You are invited to the team <strong>The team_a</strong>, as viewer" in (await guest.get(made.link)).body
    assert (await guest.post(made.link, password=PASSWORD)).status == 303
    assert await roles(house, NEW) == ({"team_a": "viewer"}, {})
    assert await guest.sees(A)
    assert (await house.browser().get(made.link)).status == 404
    lines = [(line.action, line.actor) for line in await house.store.audit.lines("team_a")]
    assert lines[:2] == [
        ("member.accept", NEW),
        ("member.invite", "owner@example.com"),
    ]


async def test_who_has_an_account_signs_in_and_accepts(house: House) -> None:
    """The account is an operator's, so it needs no new password."""
    ada, bea = await house.person(ADA, team_a="viewer"), await house.person("bea@example.com", team_b="owner")
    link = (await bea.post(f"{B}/team", email=ADA, role="developer")).link
    fresh = house.browser()
    asked = await fresh.get(link)
    assert (asked.status, asked.place) == (303, f"/dashboard/sign-in?next={link}")
    assert (await fresh.post(asked.place, email=ADA, password=PASSWORD)).place == link
    assert "New password" not in (await fresh.get(link)).body
    assert (await fresh.post(link)).place == B
    assert await roles(house, ADA) == ({"team_a": "viewer", "team_b": "developer"}, {})
    assert await ada.sees(B)  # the other session goes on


@pytest.mark.parametrize(
    ("answer", "has"), [("accept", {"team_a": "viewer", "team_b": "developer"}), ("decline", {"team_a": "viewer"})]
)
async def test_an_invitation_is_answered_on_the_first_page(house: House, answer: str, has: dict[str, str]) -> None:
    ada, bea = await house.person(ADA, team_a="viewer"), await house.person("bea@example.com", team_b="owner")
    link = (await bea.post(f"{B}/team", email=ADA, role="developer")).link
    assert "The team_b invites you as developer" in (await ada.get("/dashboard")).body
    assert (await ada.post("/dashboard/invitations", team="team_b", answer=answer)).status == 303
    assert await roles(house, ADA) == (has, {})
    assert (await ada.get(link)).status == 404
    assert (await house.store.audit.lines("team_b"))[0].action == f"member.{answer}"


async def test_only_a_plain_answer_counts(house: House) -> None:
    ada, bea = await house.person(ADA, team_a="viewer"), await house.person("bea@example.com", team_b="owner")
    await bea.post(f"{B}/team", email=ADA, role="developer")
    for said in ({}, {"answer": ""}, {"answer": "no"}):
        assert (await ada.post("/dashboard/invitations", team="team_b", **said)).status == 404
    assert await roles(house, ADA) == ({"team_a": "viewer"}, {"team_b": "developer"})


@pytest.mark.parametrize("answer", ["accept", "decline"])
async def test_who_is_not_proven_answers_by_the_link_alone(house: House, answer: str) -> None:
    owner, bea = (
        await house.person("owner@example.com", team_a="owner"),
        await house.person("bea@example.com", team_b="owner"),
    )
    guest = house.browser()
    await guest.post((await owner.post(f"{A}/team", email=NEW, role="viewer")).link, password=PASSWORD)
    link = (await bea.post(f"{B}/team", email=NEW, role="developer")).link
    assert (await guest.get("/dashboard")).place == A  # the only team, and nothing of the other
    assert (await guest.post("/dashboard/invitations", team="team_b", answer=answer)).status == 404
    assert await roles(house, NEW) == ({"team_a": "viewer"}, {"team_b": "developer"})
    form = {"decline": "yes"} if answer == "decline" else {"password": PASSWORD * 2}
    assert (await guest.post(link, **form)).status == 303
    assert ("team_b" in (await roles(house, NEW))[0]) is (answer == "accept")
    assert (await roles(house, NEW))[1] == {}


async def test_an_operator_is_one_after_accepting(house: House) -> None:
    root = await house.person("root@example.com", operator=True)
    ada = await house.person(ADA)
    id_ = await house.id_of(ADA)
    made = await root.post(f"{OPERATOR}/people/{id_}/operator", operator="yes")
    assert "signed in as ada@example.com can accept the invitation" in made.body
    assert not await ada.sees(OPERATOR)
    assert (await ada.post(made.link)).status == 303
    assert await ada.sees(OPERATOR)
    assert (await root.post(f"{OPERATOR}/people/{id_}/operator")).status == 303
    assert not await ada.sees(OPERATOR)


async def test_a_link_declines_too(house: House) -> None:
    owner = await house.person("owner@example.com", team_a="owner")
    link = (await owner.post(f"{A}/team", email=NEW, role="viewer")).link
    assert (await house.browser().post(link, decline="yes")).status == 303
    assert await roles(house, NEW) == ({}, {})


# -- by mail -------------------------------------------------------------------------------------------------


async def test_where_mail_can_be_sent_the_inviter_never_sees_the_link(house: House) -> None:
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
    assert [(answer.status, answer.link) for answer in answers] == [(303, "")] * 4
    mails = house.post.mails
    assert [mail.to for mail in mails] == [[NEW], [NEW], [ADA], ["owner@example.com"]]
    assert [mail.subject for mail in mails] == [
        *["You are invited to The team_a on Heliograph"] * 2,
        "You are invited to Heliograph",
        "A new password for Heliograph",
    ]
    assert all(set(LINK.findall(mail.html or "")) == set(LINK.findall(mail.text or "")) for mail in mails)
    first, again, _, reset = (LINK.findall(mail.text or "")[0] for mail in mails)
    guest = house.browser()
    assert (await guest.post(first, password=PASSWORD)).status == 404  # the second one is the good one
    assert (await guest.post(again, password=PASSWORD)).status == 303
    person = await house.people.find(NEW)
    assert person
    assert person.proven
    assert (await guest.post(reset, password=PASSWORD * 2)).status == 303


async def test_a_stranger_is_mailed_no_address_that_a_team_wrote(house: House) -> None:
    await house.send_mail()
    team = records.TeamRecord(ref=11, id="team_a", name="Your bank https://evil.test <b>now</b>")
    await set_up(house.store, rows=[to_row("team", "team_a", team, "team_a")])
    owner = await house.person("owner@example.com", team_a="owner")
    await owner.post(f"{A}/team", email=NEW, role="viewer")
    (mail,) = house.post.mails
    assert mail.subject == "You are invited to Your bank on Heliograph"
    assert "evil" not in f"{mail.text}{mail.html}" and "<b>" not in (mail.html or "")


async def test_a_mail_that_is_not_taken(house: House) -> None:
    await house.send_mail()
    owner = await house.person("owner@example.com", team_a="owner")
    house.post.says = Refused(detail={"text": "550 no."})
    refused = await owner.post(f"{A}/team", email=NEW, role="viewer")
    told = f"{NEW} is invited, but the mail was not sent. The mail was not taken: 550 no."
    assert (refused.status, told in refused.body, refused.link) == (400, True, "")
    (link,) = LINK.findall(house.post.mails[0].text or "")
    assert (await house.browser().get(link)).status == 404
    assert await roles(house, NEW) == ({}, {"team_a": "viewer"})
    house.post.says = Accepted(carrier_id="1")
    assert (await owner.post(f"{A}/team/{await house.id_of(NEW)}/link")).status == 303
    (link,) = LINK.findall(house.post.mails[1].text or "")
    assert (await house.browser().get(link)).status == 200


async def test_a_reset_that_is_not_taken_says_nothing_of_invitations(house: House) -> None:
    await house.send_mail()
    root = await house.person("root@example.com", operator=True)
    await house.person(ADA)
    house.post.says = Refused(detail={"text": "550 no."})
    refused = await root.post(f"{OPERATOR}/people/{await house.id_of(ADA)}/link")
    assert "The mail was not taken: 550 no." in refused.body and "is invited" not in refused.body


async def test_nobody_is_flooded_with_mails(house: House) -> None:
    await house.send_mail()
    owner = await house.person("owner@example.com", team_a="owner")
    for _ in range(TRIES_MAX + 2):
        answer = await owner.post(f"{A}/team", email=NEW, role="viewer")
        await owner.post(f"{A}/team/{await house.id_of(NEW)}/remove")
    assert len(house.post.mails) == TRIES_MAX
    assert f"{NEW} is invited, but the mail was not sent. Too many mails were asked for." in answer.body


async def test_a_suspended_team_invites_nobody(house: House) -> None:
    root = await house.person("root@example.com", operator=True)
    owner = await house.person("owner@example.com", team_a="owner")
    await root.post(f"{OPERATOR}/teams/team_a/suspend", suspended="yes")
    assert (await owner.post(f"{A}/team", email=NEW, role="viewer")).status == 403
    assert await house.people.find(NEW) is None


# -- the ticket between password and code --------------------------------------------------------------------


async def test_a_wrong_code_gives_the_next_ticket_for_the_same_time(house: House) -> None:
    person = (await house.offer(ADA)).person
    ticket = await house.people.make_ticket(Link(person.id, "ticket"))
    used = await house.people.use_link(ticket, "ticket")
    assert used
    house.clock.forward(9 * 60_000)
    again = await house.people.make_ticket(used)
    house.clock.forward(60_000)
    assert await house.people.use_link(again, "ticket") is None
