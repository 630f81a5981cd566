"""Messages and verifications in a browser: search, timeline, live, preview, source, resend, and who may do what."""

import re
from typing import Any

import pytest

from tests.dashboard.conftest import Shoot, Site, TabPool, sync_api
from tests.service import Service, until

expect = sync_api.expect
TEAM = "/dashboard/teams/team_acme"
SENDER = "hello@acme.test"
HTML = """<h1 style="color:#9a3412">Hello Ada</h1><p>Your parcel is on its way.</p>
<script>parent.document.title = "broken"</script><img src="http://127.0.0.1:1/pixel.png" alt="pixel">"""


def send_and_wait(site: Site, path: str, body: Any, ends_as: str | None = "delivered") -> str:
    response = site.service.post(path, body)
    assert response.status == 202, response.raw
    id_: str = response.json["id"]
    if ends_as:
        until(lambda: site.service.get(f"{path}/{id_}").json["status"] == ends_as)
    return id_


def email_request(to: Any, subject: str, **more: Any) -> Any:
    return {"from": SENDER, "to": to, "subject": subject, **({"text": "Hello"} | more)}


@pytest.fixture(scope="module")
def sent(running: Service, tabs: TabPool) -> dict[str, str]:
    site = Site(running, tabs)
    files = [{"filename": "bill.txt", "content_type": "text/plain", "content": "aGVsbG8="}]
    whole = email_request(["delivered@simulator.test"], "Your parcel", html=HTML, attachments=files)
    sms = {"to": "+15005550006", "template_id": "tpl_sms", "variables": {"parcel": "42"}}
    whatsapp = {"to": "+15005550006", "template_id": "tpl_whatsapp", "variables": {"parcel": "42"}}
    return {
        "email": send_and_wait(site, "/v1/emails", whole),
        "failed": send_and_wait(site, "/v1/emails", email_request("failed@simulator.test", "Never arrives"), "failed"),
        "bounced": send_and_wait(
            site, "/v1/emails", email_request("bounced@simulator.test", "Nobody there"), "bounced"
        ),
        "failed_sms": send_and_wait(site, "/v1/sms", sms | {"to": "+15005550001"}, "failed"),
        "failed_whatsapp": send_and_wait(site, "/v1/whatsapp", whatsapp | {"to": "+15005550001"}, "failed"),
        "sms": send_and_wait(site, "/v1/sms", sms),
        "whatsapp": send_and_wait(site, "/v1/whatsapp", whatsapp, "read"),
    }


def open_as_role(site: Site, name: str, path: str, role: str = "owner", **more: Any) -> Any:
    return site.open(f"{name}@example.com", "--team", "team_acme", "--role", role, path=path, **more)


def test_message_list_is_searched(site: Site, sent: dict[str, str], shoot: Shoot) -> None:
    page = open_as_role(site, "list", f"{TEAM}/messages")
    rows = page.locator("tbody tr:not(.day)")
    expect(rows).to_have_count(7)
    expect(rows.first).to_contain_text("WhatsApp")  # the newest
    shoot(page, "messages")
    search = page.get_by_label("Recipient, subject or ID")
    for text, count in (("delivered@", 1), ("+1 500 555 000", 4), ("PARCEL", 1), ("nothing", 0)):
        search.fill(text)
        page.get_by_role("button", name="Search", exact=True).click()
        expect(page.get_by_text("No messages match") if count == 0 else rows).to_have_count(count or 1)
        page.get_by_role("link", name="Clear", exact=True).click()
    page.get_by_label("Channel").select_option("email")
    page.get_by_label("Status").select_option("failed")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("Never arrives")
    page.goto(f"{TEAM}/messages?from=never")
    expect(page.get_by_role("alert")).to_contain_text("2026-11-15")
    search.fill(sent["sms"])
    page.get_by_role("button", name="Search", exact=True).click()
    page.wait_for_url(f"**/messages/{sent['sms']}")


def test_email_page_shows_timeline_and_preview(site: Site, sent: dict[str, str], shoot: Shoot) -> None:
    page = open_as_role(site, "email", f"{TEAM}/messages/{sent['email']}")
    expect(page.get_by_role("heading", name="Your parcel")).to_be_visible()
    expect(page.locator("#why")).to_contain_text("Delivered (simulated)")
    expect(page.locator(".timeline")).to_contain_text("250")
    expect(page.locator("#content")).to_contain_text("bill.txt")
    expect(page.frame_locator("iframe").get_by_role("heading", name="Hello Ada")).to_be_visible()
    assert page.title() == "Your parcel · Acme · Heliograph"
    shoot(page, "message-email")
    plain = page.request.get(f"{TEAM}/messages/{sent['email']}/preview").headers["content-security-policy"]
    assert "img-src data:;" in plain
    assert "; sandbox;" in plain
    assert "script-src" not in plain
    with page.expect_request("**/pixel.png"):
        page.get_by_role("link", name="Load remote images").click()
    assert page.title() == "Your parcel · Acme · Heliograph"
    page.get_by_role("link", name="Raw source").click()
    expect(page.locator("body")).to_contain_text("Subject: Your parcel")
    saved = page.request.get(f"{TEAM}/messages/{sent['email']}/source?download")
    assert saved.headers["content-disposition"] == f"attachment; filename={sent['email']}.eml"


def test_bounced_email_page_explains_bounce(site: Site, sent: dict[str, str], shoot: Shoot) -> None:
    page = open_as_role(site, "bounce", f"{TEAM}/messages/{sent['bounced']}")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        box = page.locator("#why")
        for words in (
            "Not delivered: bounced",
            "This mailbox doesn't exist.",
            "550 5.1.1 No such user",
            "stop sending to it",
        ):
            expect(box).to_contain_text(words)
        expect(page.get_by_role("button", name="Send again anyway")).to_be_visible()  # it would bounce again
        expect(page.get_by_role("list", name="Timeline of bounced@simulator.test")).to_contain_text("550 5.1.1")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
    page.remove_locator_handler(page.locator("dialog"))  # it confirms every dialog
    send_again = page.get_by_role("button", name="Send again anyway")
    send_again.click()
    dialog = page.get_by_role("dialog", name="This mailbox doesn't exist. Resending will probably fail again.")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    shoot(page, "message-send-again")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(send_again).to_be_focused()
    send_again.click()
    dialog.get_by_role("button", name="Send again anyway").click()
    page.wait_for_url(lambda url: not url.endswith(sent["bounced"]))
    shoot(page, "message-bounced")


def test_phone_message_pages_show_text_and_segments(site: Site, sent: dict[str, str], shoot: Shoot) -> None:
    page = open_as_role(site, "phone", f"{TEAM}/messages/{sent['sms']}")
    expect(page.locator(".bubble")).to_contain_text("Acme: parcel 42 is on its way.")
    expect(page.locator("#content")).to_contain_text("GSM-7")
    shoot(page, "message-sms")
    page.goto(f"{TEAM}/messages/{sent['whatsapp']}")
    expect(page.locator(".bubble")).to_contain_text("parcel 42")
    shoot(page, "message-whatsapp")


def test_message_page_links_to_its_batch(site: Site) -> None:
    batch = site.service.post(
        "/v1/emails/batch", {"messages": [email_request("delivered@simulator.test", "One of many")]}
    ).json
    page = open_as_role(site, "batched", f"{TEAM}/messages/{batch['data'][0]['id']}")
    expect(page.get_by_label("Details")).to_contain_text(batch["id"])


@pytest.mark.in_full
def test_failed_message_is_sent_again(site: Site, sent: dict[str, str], shoot: Shoot) -> None:
    page = open_as_role(site, "again", f"{TEAM}/messages/{sent['failed']}", "developer")
    shoot(page, "message-failed")
    for name in ("failed", "failed_sms", "failed_whatsapp"):
        page.goto(f"{TEAM}/messages/{sent[name]}")
        shown_text = page.locator("#content pre, #content .bubble").inner_text()
        page.get_by_role("button", name="Send again").click()
        expect(page.locator(".flash")).to_contain_text(f"The original is {sent[name]}")
        expect(page.locator("#content pre, #content .bubble")).to_have_text(shown_text)
    page.goto(f"{TEAM}/messages/{sent['email']}")  # no recipient is left
    expect(page.get_by_role("heading", name="Your parcel")).to_be_visible()
    expect(page.get_by_role("button", name="Send again")).to_have_count(0)


def test_message_page_actions_depend_on_role(site: Site, sent: dict[str, str]) -> None:
    page = open_as_role(site, "viewer", f"{TEAM}/messages/{sent['failed']}", "viewer")
    expect(page.get_by_role("heading", name="Never arrives")).to_be_visible()
    expect(page.get_by_role("button", name="Send again")).to_have_count(0)
    assert page.request.post(f"{TEAM}/messages/{sent['failed']}/resend").status == 403
    page = site.open("else@example.com", "--team", "team_other", "--role", "owner", path="/dashboard")
    for path in (f"{TEAM}/messages", f"/dashboard/teams/team_other/messages/{sent['email']}"):
        assert page.goto(path).status == 404
    assert page.goto(f"/dashboard/teams/team_other/messages/{sent['email']}/preview").status == 404


def test_message_page_updates_live_until_finished(site: Site) -> None:
    done = site.service.run("pause")
    assert done.returncode == 0, done.stderr
    try:
        until(
            lambda: (
                site.service.post("/v1/emails", email_request("delivered@simulator.test", "x")).json["status"]
                == "queued"
            )
        )
        id_ = send_and_wait(site, "/v1/emails", email_request("delivered@simulator.test", "Moving"), None)
        page = open_as_role(site, "live", f"{TEAM}/messages/{id_}")
        expect(page.locator("dl.facts .badge").first).to_have_text("Queued")
    finally:
        site.service.run("resume")
    expect(page.locator("dl.facts .badge").first).to_have_text("Delivered")
    expect(page.locator(".timeline > li")).not_to_have_count(1)


def test_verification_pages_show_outcome_without_code(site: Site, shoot: Shoot) -> None:
    begun = site.service.post("/v1/verify", {"to": "+15005551042"}).json["id"]
    page = open_as_role(site, "verify", f"{TEAM}/verifications")
    expect(page.locator("tbody tr:not(.day)")).to_have_count(1)
    expect(page.locator("tbody tr:not(.day)")).to_contain_text("Waiting")
    site.service.post(f"/v1/verify/{begun}/check", {"code": "999999"})
    site.service.post(f"/v1/verify/{begun}/check", {"code": "551042"})
    page.get_by_label("Phone number, email address or ID").fill("+15005551042")
    page.get_by_role("button", name="Search", exact=True).click()
    page.get_by_role("link", name="+15005551042").click()
    expect(page.locator("main")).to_contain_text("Verified")
    expect(page.locator("main")).to_contain_text(re.compile("1 of [0-9]"))
    assert "551042" not in page.locator("main").inner_text().replace("+15005551042", "")
    shoot(page, "verification")
    page.get_by_role("link", name="Verifications").first.click()
    shoot(page, "verifications")
