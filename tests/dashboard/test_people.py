"""What operators do with people: add, promote, help back in, remove."""

from tests.dashboard.conftest import Shoot, Site, sync_api
from tests.dashboard.test_members import choose_password

expect = sync_api.expect
PEOPLE = "/dashboard/operator/people"


def test_add_promote_and_remove(site: Site, shoot: Shoot) -> None:
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
    page.get_by_role("button", name="Make operator").click()
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

    page.get_by_role("button", name="Password reset link").click()
    choose_password(ada, page.locator(".once code").inner_text())
    page.get_by_role("button", name="Delete person").click()
    expect(page.get_by_role("status")).to_have_text("ada@example.com is deleted.")
    ada.goto("/dashboard")
    assert "/sign-in" in ada.url

    page.get_by_role("link", name="root@example.com").last.click()
    page.get_by_role("button", name="Delete person").click()
    expect(page.get_by_role("alert")).to_have_text("The instance keeps an operator. Make somebody else one first.")
