"""The test inbox: rendering, search, inspection and deletion of simulated messages; codes of the sandbox."""

import re
from email import message_from_string
from email.policy import default
from typing import Any

import pytest

from tests.dashboard.conftest import Shoot, Site, assert_fits, sync_api
from tests.service import until

expect = sync_api.expect
ACME, SANDBOX = "/dashboard/teams/team_acme/inbox", "/dashboard/teams/team_sandbox/inbox"
HTML = '<h1 id="hi">Hello</h1><script>document.title = "run"</script><img src="https://pictures.example/x.png">'


@pytest.fixture
def send(site: Site) -> Any:
    def post(path: str, body: dict[str, Any], key: str = "ACME") -> str:
        """Send a message and wait until it is delivered."""
        response = site.service.post(f"/v1{path}", body, key=key)
        assert response.status == 202, response.raw
        id_: str = response.json["id"]
        if path != "/verify":
            until(lambda: site.service.get(f"/v1{path}/{id_}", key=key).json["status"] in ("delivered", "read"))
        return id_

    return post


def mail_request(subject: str, to: str = "delivered@simulator.test", **more: Any) -> dict[str, Any]:
    return {"from": "hi@acme.test", "to": to, "subject": subject, "html": HTML, "text": "Hello in text"} | more


FILES = [
    {"filename": "note.txt", "content_type": "text/plain", "content": "SGVsbG8="},
    {"filename": "paper.pdf", "content_type": "application/pdf", "content": "JVBERi0="},
]


def test_inbox_mails_are_listed_searched_and_opened(site: Site, send: Any, shoot: Shoot) -> None:
    subject = "Grüße & <b>Welt</b>"
    html = HTML + '<p style="display:flex">Your code is 493028</p><a href="https://acme.com/in?a=1&amp;b=2">in</a>'
    id_ = send("/emails", mail_request(subject, html=html, attachments=FILES))
    send("/emails", mail_request("Another", to="delivered+ada@simulator.test"))
    page = site.open("ada@example.com", "--team", "team_acme", "--role", "developer", path=ACME)
    rows = page.locator("tbody tr:not(.day)")
    expect(rows.first).to_contain_text("Another")
    expect(rows.nth(1)).to_contain_text("hi@acme.test")
    assert_fits(page, shoot, "inbox")
    page.get_by_label("Recipient, subject or text").fill("& <B>Welt")
    page.get_by_role("button", name="Search").click()
    expect(rows).to_have_count(1)
    expect(rows.first).to_have_class("unread")
    page.get_by_role("link", name=subject).click()
    page.frame_locator("iframe").locator("#hi").wait_for()
    expect(page.locator(".taken")).to_contain_text("493028")
    expect(page.locator(".taken")).to_contain_text("https://acme.com/in?a=1&b=2")
    assert_fits(page, shoot, "inbox-email")
    page.get_by_role("link", name="Phone").click()
    assert page.locator("iframe").bounding_box()["width"] <= 390
    tabs = page.get_by_role("navigation", name="Parts of the email")
    for tab, text in {
        "Text": "Hello in text",
        "Headers": "multipart/",
        "Source": "MIME-Version: 1.0",
        "Links": "https://acme.com/in?a=1&b=2",
        "HTML check": "display: flex",
    }.items():
        tabs.get_by_role("link", name=re.compile(f"^{tab}")).click()
        expect(page.locator("#mail")).to_contain_text(text)
        assert_fits(page, shoot, f"inbox-{tab.lower().replace(' ', '-')}")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download .eml").click()
    assert download.value.suggested_filename == f"{id_}.eml"
    built = message_from_string(download.value.path().read_text(), policy=default)
    assert built["subject"] == subject
    page.get_by_role("button", name="Mark as unread").click()
    expect(page.locator("tr.unread", has_text=subject)).to_have_count(1)
    page.get_by_role("link", name=subject).click()
    page.goto(f"{ACME}?q=Welt&unread=yes")
    expect(page.get_by_text("No matching messages")).to_be_visible()
    page.goto(f"{ACME}/{id_}")
    page.get_by_role("button", name="Delete").click()
    expect(page.locator(".flash")).to_contain_text("Deleted from the test inbox")
    expect(page.get_by_role("link", name=subject)).to_have_count(0)
    assert page.request.get(f"{ACME}/{id_}").status == 404
    assert page.request.get(f"{ACME.replace('inbox', 'messages')}/{id_}").status == 200


def test_scripts_in_inbox_mail_do_not_run(site: Site, send: Any) -> None:
    id_ = send("/emails", mail_request("Safe", attachments=FILES))
    page = site.open("safe@example.com", "--team", "team_acme", "--role", "viewer", path=f"{ACME}/{id_}")
    response = page.request.get(f"{ACME}/{id_}/html")
    policy = response.headers["content-security-policy"]
    assert "sandbox" in policy and "default-src 'none'" in policy and "https:" not in policy
    asked = page.request.get(f"{ACME}/{id_}/html?pictures=yes")
    assert "img-src data: https:" in asked.headers["content-security-policy"]
    opened = page.request.get(f"{ACME}/{id_}/files/0")
    assert (opened.text(), opened.headers["content-type"]) == ("Hello", "text/plain; charset=utf-8")
    assert "sandbox" in opened.headers["content-security-policy"] and "content-disposition" not in opened.headers
    for path in ("files/0?save", "files/1"):
        saved = page.request.get(f"{ACME}/{id_}/{path}")
        assert saved.headers["content-type"] == "application/octet-stream"
        assert saved.headers["content-disposition"].startswith("attachment")
        assert saved.headers["x-content-type-options"] == "nosniff"
    for path in ("files/2", "files/-1", "files/x"):
        assert page.request.get(f"{ACME}/{id_}/{path}").status == 404
    csrf = page.locator("input[name=csrf]").first.input_value()  # viewing as a viewer does not mark the message as read
    for path in ("delete", "unread"):
        assert page.request.post(f"{ACME}/{id_}/{path}", form={"csrf": csrf}).status == 403
    page.goto(ACME)
    expect(page.locator("tr.unread", has_text="Safe")).to_have_count(1)


def test_inbox_phone_messages_show_segments(site: Site, send: Any, shoot: Shoot) -> None:
    page = site.open("phones@example.com", "--team", "team_acme", "--role", "viewer", path=f"{ACME}?channel=sms")
    expect(page.get_by_text("No messages yet")).to_be_visible()
    shoot(page, "inbox-empty")
    parcel = {"parcel": "42 \u2603", "note": "x" * 80}
    send("/sms", {"to": "+15005550006", "template_id": "tpl_sms", "variables": parcel})
    page.reload()
    page.get_by_role("link", name="Acme: parcel 42").click()
    facts = page.locator("dl.facts").first.inner_text()
    assert "UCS-2" in facts and "on the air" not in facts
    shoot(page, "inbox-sms")
    send("/whatsapp", {"to": "+15005550006", "template_id": "tpl_whatsapp", "variables": {"parcel": "42"}})
    page.goto(f"{ACME}?channel=whatsapp")
    page.get_by_role("link", name="Acme: parcel 42").click()
    assert page.locator(".bubble").inner_text() == "Acme: parcel 42 is on its way."
    shoot(page, "inbox-whatsapp")


def test_inbox_shows_codes_of_test_and_verified_numbers(site: Site, send: Any, shoot: Shoot) -> None:
    send("/verify", {"to": "+15005550006"}, key="SANDBOX")
    id_ = send("/verify", {"to": "+447400123456"}, key="SANDBOX")
    page = site.open(
        "codes@example.com", "--team", "team_sandbox", "--role", "developer", path=f"{SANDBOX}?channel=verification"
    )
    expect(page.locator("tbody code", has_text="000000")).to_be_visible()
    text = page.locator(".bubble").inner_text()
    code = text.split("code is ")[1][:6]
    shoot(page, "inbox-codes")
    page.get_by_label("Phone number").fill("447400")
    page.get_by_role("button", name="Search").click()
    assert page.locator("tbody tr").count() == 1
    response = site.service.post(f"/v1/verify/{id_}/check", {"code": code}, key="SANDBOX")
    assert response.json["status"] == "verified"
    database = site.service.database.removeprefix("sqlite:///")
    for file in (database, f"{database}-wal"):
        with open(file, "rb") as kept:
            assert f"code is {code}".encode() not in kept.read()


def test_clearing_inbox_hides_older_messages(site: Site, send: Any) -> None:
    send("/emails", mail_request("Before"))
    viewer = site.open("looks@example.com", "--team", "team_acme", "--role", "viewer", path=ACME)
    assert viewer.get_by_role("button", name="Delete all").count() == 0
    csrf = viewer.locator("input[name=csrf]").first.input_value()
    assert viewer.request.post(ACME, form={"csrf": csrf}).status == 403
    page = site.open("clears@example.com", "--team", "team_acme", "--role", "developer", path=ACME)
    page.locator("main").get_by_text("More", exact=True).click()
    page.get_by_role("button", name="Delete all").click()
    page.get_by_text("Everything was deleted from the test inbox.").wait_for()
    assert page.locator("tbody tr").count() == 0
    send("/emails", mail_request("After"))
    page.reload()
    assert page.locator("tbody").get_by_role("link").all_inner_texts() == ["After"]


def test_inbox_item_of_other_team_returns_404(site: Site, send: Any) -> None:
    id_ = send("/emails", mail_request("Mine"))
    page = site.open("other@example.com", "--team", "team_other", "--role", "owner")
    for path in (f"/dashboard/teams/team_other/inbox/{id_}", f"{ACME}/{id_}", f"{ACME}/{id_}/eml"):
        assert page.request.get(path).status == 404
