"""Account management by operators: add, promote, restore access, remove."""

from typing import Any

import pytest

from heliograph.domain.accounts.idp_groups import READ_ONLY
from heliograph.domain.audit.actor import SERVICE
from heliograph.domain.setup.records import TeamRecord
from heliograph.manage import people
from heliograph.manage.people import LinkTerms, NewPerson
from heliograph.storage.store import Store
from tests.dashboard.conftest import Shoot, Site, sync_api
from tests.dashboard.inside import OPERATOR, Pages, write_records
from tests.dashboard.test_members import choose_password
from tests.storage.test_idempotency import make_context

expect = sync_api.expect
PEOPLE = "/dashboard/operator/people"


def test_person_is_added_promoted_and_removed(site: Site, shoot: Shoot) -> None:
    page = site.open("root@example.com", "--operator", path=PEOPLE)
    shoot(page, "people")
    page.get_by_role("link", name="Add person").click()
    page.get_by_label("Email address").fill("ada@example.com")
    page.get_by_role("button", name="Add person").click()
    link = page.locator(".once code").inner_text()
    ada = site.page()
    choose_password(ada, link)
    assert ada.goto(PEOPLE).status == 403

    page.goto(PEOPLE)
    page.get_by_label("Email address").fill("ADA@")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("row")).to_have_count(2)
    page.get_by_role("link", name="ada@example.com").click()
    page.get_by_label("Team", exact=True).select_option("team_acme")
    page.get_by_role("button", name="Set role").click()
    expect(page.locator(".once")).to_be_visible()
    page.get_by_label("Operator role").select_option("Operator")
    page.get_by_role("button", name="Save operator role").click()
    expect(page.get_by_label("Operator role")).to_have_value("yes")
    shoot(page, "person")
    ada.goto(page.locator(".once code").inner_text())
    shoot(ada, "invitation")
    ada.get_by_role("button", name="Accept").click()
    expect(ada.get_by_role("status")).to_have_text("Welcome.")
    page.goto(f"{PEOPLE}/{page.url.split('/people/')[1].split('/')[0]}")
    assert ada.goto(PEOPLE).status == 200
    page.get_by_role("button", name="Sign out everywhere").click()
    ada.goto(PEOPLE)
    assert "/sign-in" in ada.url

    page.get_by_role("button", name="Create password reset link").click()
    choose_password(ada, page.locator(".once code").inner_text())
    page.get_by_role("button", name="Delete person").click()
    expect(page.get_by_role("status")).to_have_text("ada@example.com deleted.")
    ada.goto("/dashboard")
    assert "/sign-in" in ada.url

    page.get_by_role("link", name="root@example.com").last.click()
    page.get_by_role("button", name="Delete person").click()
    expect(page.get_by_role("alert")).to_have_text(
        "The instance needs an operator. Make another person an operator first."
    )


@pytest.mark.anyio
async def test_people_pages_show_sign_in_method_and_invitations(store: Store, clock: Any) -> None:
    await write_records(store, ("team", "team_1", TeamRecord(ref=1, id="team_1", name="Acme"), "team_1"))
    terms = LinkTerms(by_operator=True, by_mail=False)
    ada = await people.add_person(store, SERVICE, NewPerson(email="ada@example.com", name="Ada"), READ_ONLY, terms)
    named = {"issuer": "https://login.example.com", "subject": "7", "person": ada.person.id, "now": 0}
    await store.database.write(lambda tx: tx.run("insert_identity", **named))
    await store.database.write(lambda tx: tx.run("set_member", person=ada.person.id, team="team_1", role="owner"))
    pages = Pages(make_context(store, clock))
    listed, item = [
        await pages.get(f"/dashboard/operator/people{path}", OPERATOR) for path in ("", f"/{ada.person.id}")
    ]
    assert "Invited, read-only operator" in listed.text and "Invited, read-only operator" in item.text
    for response in (listed, await pages.get("/dashboard/teams/team_1/team")):
        assert "login.example.com" in response.text and "No password yet" not in response.text
