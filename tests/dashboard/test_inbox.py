"""The inbox: what simulators delivered, rendered, searched, downloaded and cleared; codes for the sandbox."""

from email import message_from_string
from email.policy import default
from typing import Any

import pytest

from tests.dashboard.conftest import Shoot, Site
from tests.service import until

ACME, SANDBOX = "/dashboard/teams/team_acme/inbox", "/dashboard/teams/team_sandbox/inbox"
HTML = '<h1 id="hi">Hello</h1><script>document.title = "run"</script><img src="https://pictures.example/x.png">'


@pytest.fixture
def send(site: Site) -> Any:
    def post(path: str, body: dict[str, Any], key: str = "ACME") -> str:
        """Send, and wait until it was delivered."""
        answer = site.service.post(f"/v1{path}", body, key=key)
        assert answer.status == 202, answer.raw
        id_: str = answer.json["id"]
        if path != "/verify":
            until(lambda: site.service.get(f"/v1{path}/{id_}", key=key).json["status"] in ("delivered", "read"))
        return id_

    return post


def mail(subject: str, to: str = "delivered@simulator.test", **more: Any) -> dict[str, Any]:
    return {"from": "hi@acme.test", "to": to, "subject": subject, "html": HTML, "text": "Hello in text"} | more


def test_mails_are_listed_searched_rendered_and_downloaded(site: Site, send: Any, shoot: Shoot) -> None:
    id_ = send("/emails", mail("Grüße & <b>more</b>"))
    send("/emails", mail("Another", to="delivered+ada@simulator.test"))
    page = site.open("inbox@example.com", "--team", "team_acme", "--role", "viewer", path=ACME)
    rows = page.locator("tbody tr")
    assert rows.count() == 2
    assert rows.first.get_by_role("link").inner_text() == "Another"
    shoot(page, "inbox")
    page.get_by_label("Recipient or subject").fill("& <B>MORE")
    page.get_by_role("button", name="Search").click()
    assert rows.count() == 1
    rows.get_by_role("link", name="Grüße & <b>more</b>").click()
    frame = page.frame_locator("iframe")
    frame.locator("#hi").wait_for()
    assert page.locator("pre").inner_text() == "Hello in text"
    shoot(page, "inbox-email")
    answer = page.request.get(f"{ACME}/{id_}/html")
    policy = answer.headers["content-security-policy"]
    assert "sandbox" in policy and "default-src 'none'" in policy and "https:" not in policy
    asked = page.request.get(f"{ACME}/{id_}/html?pictures=yes")
    assert "img-src data: https:" in asked.headers["content-security-policy"]
    with page.expect_download() as download:
        page.get_by_role("link", name="Download .eml").click()
    assert download.value.suggested_filename == f"{id_}.eml"
    built = message_from_string(download.value.path().read_text(), policy=default)
    assert built["subject"] == "Grüße & <b>more</b>"
    plain = built.get_body(("plain",))
    assert plain and "Hello in text" in plain.get_content()


def test_phones_with_segments_and_a_bubble(site: Site, send: Any, shoot: Shoot) -> None:
    page = site.open("phones@example.com", "--team", "team_acme", "--role", "viewer", path=f"{ACME}?channel=sms")
    assert page.get_by_text("Nothing here yet").is_visible()
    shoot(page, "inbox-empty")
    parcel = {"parcel": "42 \u2603", "note": "x" * 80}
    send("/sms", {"to": "+15005550006", "template_id": "tpl_sms", "variables": parcel})
    page.reload()
    page.get_by_role("link", name="Acme: parcel 42").click()
    facts = page.locator("dl.facts").inner_text()
    assert "UCS-2" in facts and "2 billed, 2 on the air" in facts
    shoot(page, "inbox-sms")
    send("/whatsapp", {"to": "+15005550006", "template_id": "tpl_whatsapp", "variables": {"parcel": "42"}})
    page.goto(f"{ACME}?channel=whatsapp")
    page.get_by_role("link", name="Acme: parcel 42").click()
    assert page.locator(".bubble").inner_text() == "Acme: parcel 42 is on its way."
    shoot(page, "inbox-whatsapp")


def test_codes_of_magic_and_of_verified_sandbox_numbers(site: Site, send: Any, shoot: Shoot) -> None:
    send("/verify", {"to": "+15005550006"}, key="SANDBOX")
    id_ = send("/verify", {"to": "+447400123456"}, key="SANDBOX")
    page = site.open(
        "codes@example.com", "--team", "team_sandbox", "--role", "developer", path=f"{SANDBOX}?channel=verification"
    )
    assert page.locator("tbody code", has_text="000000").is_visible()
    text = page.locator(".bubble").inner_text()
    code = text.split("code is ")[1][:6]
    shoot(page, "inbox-codes")
    page.get_by_label("Phone number").fill("447400")
    page.get_by_role("button", name="Search").click()
    assert page.locator("tbody tr").count() == 1
    answer = site.service.post(f"/v1/verify/{id_}/check", {"code": code}, key="SANDBOX")
    assert answer.json["status"] == "verified"
    database = site.service.database.removeprefix("sqlite:///")
    for file in (database, f"{database}-wal"):
        with open(file, "rb") as kept:
            assert f"code is {code}".encode() not in kept.read()


def test_clearing_hides_what_there_was(site: Site, send: Any) -> None:
    send("/emails", mail("Before"))
    viewer = site.open("looks@example.com", "--team", "team_acme", "--role", "viewer", path=ACME)
    assert viewer.get_by_role("button", name="Clear").count() == 0
    csrf = viewer.locator("input[name=csrf]").first.input_value()
    assert viewer.request.post(ACME, form={"csrf": csrf}).status == 403
    page = site.open("clears@example.com", "--team", "team_acme", "--role", "developer", path=ACME)
    page.get_by_role("button", name="Clear").click()
    page.get_by_text("The inbox is empty.").wait_for()
    assert page.locator("tbody tr").count() == 0
    send("/emails", mail("After"))
    page.reload()
    assert page.locator("tbody").get_by_role("link").all_inner_texts() == ["After"]


def test_another_teams_item_is_not_there(site: Site, send: Any) -> None:
    id_ = send("/emails", mail("Mine"))
    page = site.open("other@example.com", "--team", "team_other", "--role", "owner")
    for path in (f"/dashboard/teams/team_other/inbox/{id_}", f"{ACME}/{id_}", f"{ACME}/{id_}/eml"):
        assert page.request.get(path).status == 404
