"""Templates in the browser: edit, preview, approve, send; versions; who may do what."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.conftest import DESKTOP, PHONE, Shoot, Site, assert_fits, sync_api

expect = sync_api.expect
TEAM = ("--team", "team_acme", "--role", "developer")
HERE = "/dashboard/teams/team_acme/templates"


def preview_frame(page: Any) -> Any:
    return page.frame_locator("iframe.shown-template:visible").first


def require_approval(site: Site, folder: Path, needed: bool) -> None:
    file = folder / "platform.toml"
    file.write_text(f"[platform]\ntemplates_need_approval = {str(needed).lower()}\n")
    site.service.apply(file)


@pytest.fixture
def approving(site: Site, tmp_path: Path) -> Any:
    require_approval(site, tmp_path, True)
    yield
    require_approval(site, tmp_path, False)


def test_template_editor_leads_from_error_to_published(site: Site, shoot: Shoot) -> None:
    page = site.open("maker@example.com", *TEAM, path=HERE)
    page.get_by_role("link", name="New template").click()
    page.get_by_role("link", name="Email").click()
    page.get_by_label("Name", exact=True).fill("Invoice")
    page.get_by_label("Subject").fill("Invoice {{number}} of {{brand.domain}} {{First name}}")
    page.get_by_label("HTML").fill(
        '<p id="p" style="color: rgb(1, 2, 3)">No. {{number}}</p><script>document.body.remove()</script>'
    )
    expect(page.get_by_label("Variable 1", exact=True)).to_have_value("number")  # without a reload
    page.get_by_label("Example 1", exact=True).fill("<b>7</b>")
    mail = preview_frame(page).frame_locator("iframe")
    expect(mail.locator("#p")).to_have_text("No. <b>7</b>")
    expect(mail.locator("#p")).to_have_css("color", "rgb(1, 2, 3)")
    expect(preview_frame(page).get_by_text("write {{first_name}}")).to_be_visible()
    assert_fits(page, shoot, "template-edit-email")

    page.get_by_role("button", name="Save draft").click()
    expect(page.locator(".wrong .error")).to_contain_text("write {{first_name}}")
    assert page.get_by_label("Subject").input_value() == "Invoice {{number}} of {{brand.domain}} {{First name}}"
    expect(mail.locator("#p")).to_have_css("color", "rgb(1, 2, 3)")  # the preview is there after an error
    page.get_by_label("Phone").check()
    for size, width in ((DESKTOP, 390), (PHONE, 390 - 32)):
        page.set_viewport_size(size)
        expect(page.locator("iframe.shown-template:visible")).to_have_css("width", f"{width}px")
    page.set_viewport_size(DESKTOP)

    page.get_by_label("Subject").fill("Invoice {{number}} of {{brand.domain}}")
    page.get_by_role("button", name="Save draft").click()
    expect(page.get_by_text("Draft saved.")).to_be_visible()
    expect(page.get_by_label("Subject")).to_have_value("Invoice {{number}} of {{brand.domain}}")
    expect(page.locator("#kept")).to_be_hidden()
    expect(page).not_to_have_url(re.compile("saved=yes"))
    page.get_by_role("link", name="Invoice", exact=True).click()
    expect(page.get_by_text("Draft, not published yet")).to_be_visible()
    assert_fits(page, shoot, "template-draft")
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_text("Published. Version 1 is in use.")).to_be_visible()
    expect(page.locator("pre code")).to_contain_text("Bearer $HELIOGRAPH_KEY")
    assert_fits(page, shoot, "template-published")

    page.get_by_role("link", name="Send test").click()
    page.get_by_label("To", exact=True).fill("nobody")
    page.get_by_role("button", name="Send test").click()
    expect(page.locator(".wrong .error")).to_be_visible()
    page.get_by_label("To", exact=True).fill("delivered@simulator.test")
    page.get_by_role("button", name="Send test").click()
    page.wait_for_url("**/messages/eml_*")


def test_unsaved_template_text_is_restored(site: Site) -> None:
    page = site.open("forgetful@example.com", *TEAM, path=f"{HERE}/tpl_short/edit")
    dialog_texts: list[str] = []
    page.once("dialog", lambda dialog: dialog_texts.append(dialog.type))
    page.get_by_label("Text", exact=True).click()  # browsers ask only after a user interaction
    page.get_by_label("Text", exact=True).fill("Words {{a.b}} and more")
    expect(page.get_by_text("Unsaved changes", exact=True)).to_be_visible()
    expect(page.get_by_label("Variable 1", exact=True)).to_have_value("a.b")
    page.goto(HERE)
    assert dialog_texts == ["beforeunload"]
    page.goto(f"{HERE}/tpl_short/edit")
    expect(page.get_by_text("This browser has unsaved changes")).to_be_visible()
    expect(page.get_by_label("Text", exact=True)).not_to_have_value("Words {{a.b}} and more")
    page.get_by_role("button", name="Restore changes").click()
    expect(page.get_by_label("Text", exact=True)).to_have_value("Words {{a.b}} and more")
    expect(page.get_by_label("Variable 1", exact=True)).to_have_value("a.b")

    page.context.clear_cookies()  # the session has ended
    page.get_by_role("button", name="Save draft").click()
    page.wait_for_url("**/sign-in?**")
    page.context.add_cookies([site.cookie("forgetful@example.com")])
    page.goto(f"{HERE}/tpl_short/edit")
    page.get_by_role("button", name="Restore changes").click()
    page.get_by_role("button", name="Save draft").click()
    expect(page.get_by_text("Draft saved.")).to_be_visible()
    page.goto(f"{HERE}/tpl_short/edit")
    expect(page.get_by_label("Text", exact=True)).to_have_value("Words {{a.b}} and more")
    expect(page.locator("#kept")).to_be_hidden()
    assert dialog_texts == ["beforeunload"], "what is saved is left without a question"

    page.get_by_label("Text", exact=True).fill("Not for the next one at this desk")
    expect(page.get_by_text("Unsaved changes", exact=True)).to_be_visible()
    page.locator("header .mine > summary").click()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/sign-in**")
    assert page.evaluate("Object.keys(localStorage).filter((name) => name.startsWith('heliograph.'))") == []


def test_edited_template_is_approved_and_sent(site: Site, shoot: Shoot, approving: None) -> None:
    dev = site.open("dev@example.com", *TEAM, path=f"{HERE}/tpl_sms/edit")
    dev.get_by_label("Text", exact=True).fill("{{brand.name}}: {{customer.parcel}} is near. €{{due}}")
    expect(dev.get_by_label("Variable 3", exact=True)).to_have_value("due")
    dev.get_by_label("Example 1", exact=True).fill("P-77")
    dev.get_by_label("Example 3", exact=True).fill("5")
    expect(preview_frame(dev).get_by_text("Acme: P-77 is near. €5")).to_be_visible()
    expect(preview_frame(dev).get_by_text("Not used in the text: note.")).to_be_visible()
    expect(preview_frame(dev).locator("dl.facts").first).to_contain_text("GSM 7-bit")
    shoot(dev, "template-edit-sms")
    dev.get_by_role("button", name="Submit for approval").click()
    expect(dev.get_by_text("It takes effect once an operator approves it.")).to_be_visible()
    expect(dev.locator(".diff").first).to_contain_text("is near.")
    expect(dev.get_by_role("button", name="Approve")).to_have_count(0)
    sent = site.service.post("/v1/sms", {"to": "+15005550006", "template_id": "tpl_sms", "variables": {"parcel": "1"}})
    assert sent.status == 202, "the approved version is sent until then"

    operator = site.open("op@example.com", "--operator", path=f"{HERE}/tpl_sms")
    expect(preview_frame(operator).get_by_text("0.045 USD")).to_be_visible()
    operator.get_by_role("button", name="Approve").click()
    expect(operator.get_by_role("alert")).to_contain_text("mark the template as free")  # free in Germany
    operator.get_by_label("This template is free").check()
    operator.get_by_role("button", name="Approve").click()
    expect(operator.get_by_text("Version 2 is in use")).to_be_visible()

    dev.goto(f"{HERE}/tpl_sms/test")
    expect(dev.get_by_label("parcel", exact=True)).to_have_value("P-77")
    dev.get_by_role("button", name="Send test").click()
    dev.wait_for_url("**/messages/sms_*")
    message = site.service.get(f"/v1/sms/{dev.url.rpartition('/')[2]}")
    assert message.json["to"] == "+15005550006"


@pytest.mark.in_full
def test_sandbox_draft_test_allows_only_verified_recipients(site: Site, shoot: Shoot, approving: None) -> None:
    team, here = "team_sandbox", "/dashboard/teams/team_sandbox/templates"
    page = site.open("try@example.com", "--team", team, "--role", "developer", path=f"{here}/tpl_sandbox_email/edit")
    page.get_by_label("Plain text").fill("Draft words")
    page.get_by_role("button", name="Save draft").click()
    page.goto(f"{here}/tpl_sandbox_email/test")
    page.get_by_label("Version", exact=True).select_option("draft")
    page.get_by_label("To", exact=True).fill("stranger@example.com")
    shoot(page, "template-draft-test")
    page.get_by_role("button", name="Send test").click()
    expect(page.locator(".wrong .error")).to_contain_text("only be sent to the simulator and to")
    expect(page.get_by_label("Version", exact=True)).to_have_value("draft")
    for to in ("me@example.com", "delivered@simulator.test"):
        page.goto(f"{here}/tpl_sandbox_email/test")
        page.get_by_label("Version", exact=True).select_option("draft")
        page.get_by_label("To", exact=True).fill(to)
        page.get_by_role("button", name="Send test").click()
        page.wait_for_url("**/messages/eml_*")
        expect(page.locator("main")).to_contain_text("[Test] Hello")


def test_live_team_tests_draft_like_sandbox(site: Site) -> None:
    dev = site.open("live@example.com", *TEAM, path=f"{HERE}/tpl_draft/test")
    csrf = dev.locator("[name=csrf]").first.input_value()
    for to in ("anybody@example.com", "gone@example.com"):
        form = {"csrf": csrf, "to": to, "from": "hello@acme.test", "what": ""}
        response = dev.request.post(f"{site.url}{HERE}/tpl_draft/send", form=form)
        assert response.status == 400
        assert "only be sent to the simulator" in response.text()
    dev.get_by_role("button", name="Send test").click()
    dev.wait_for_url("**/messages/eml_*")
    message = site.service.get(f"/v1/emails/{dev.url.rpartition('/')[2]}").json
    assert (message["sandbox"], message["subject"]) == (True, "[Test] Draft")
    sent = site.service.post(
        "/v1/emails", {"to": "delivered@simulator.test", "template_id": "tpl_draft", "from": "a@acme.test"}
    )
    assert sent.code == "template_not_found", "the API sends no draft"


@pytest.mark.in_full
def test_template_versions_are_compared_and_restored(site: Site, shoot: Shoot) -> None:
    page = site.open("writer@example.com", *TEAM, path=f"{HERE}/tpl_welcome/edit")
    page.get_by_label("Plain text").fill("Hello {{customer.name}}.\nWelcome.")
    page.get_by_role("button", name="Publish").click()
    page.get_by_role("link", name="Versions").click()
    page.get_by_role("link", name="Version 2").click()
    expect(page.locator(".diff ins").first).to_have_text("+ Hello {{customer.name}}.")
    expect(page.locator(".diff del")).to_have_text("- Hi {{customer.name}}, {{brand.name}} here.")
    shoot(page, "template-version")
    page.goto(f"{HERE}/tpl_welcome/versions/1")
    page.get_by_role("button", name="Restore this version").click()
    expect(page.get_by_text("Version 3 is in use.")).to_be_visible()
    page.locator("main").get_by_text("More", exact=True).click()
    page.get_by_role("button", name="Archive").click()
    expect(page.get_by_text("Template archived. Messages that use it")).to_be_visible()
    page.goto(f"{HERE}?channel=email&status=archived")
    page.get_by_role("link", name="Welcome").click()
    page.get_by_role("button", name="Restore template").click()
    expect(page.get_by_text("Version 3 is in use.")).to_be_visible()


@pytest.mark.in_full
def test_template_price_is_set_by_operator(site: Site) -> None:
    dev = site.open("thrifty@example.com", *TEAM, path=f"{HERE}/new?channel=sms")
    expect(dev.get_by_label("Price per segment, USD")).to_have_count(0)
    csrf = dev.locator("[name=csrf]").first.input_value()
    form = {"csrf": csrf, "channel": "sms", "name": "Cheap", "body": "Cheap", "price": "0", "prices": "GB 0"}
    dev.request.post(f"{site.url}{HERE}/new", form=form)
    dev.goto(HERE)
    dev.get_by_role("link", name="Cheap").click()
    expect(dev.locator("dl.facts").first).to_contain_text("0.045 USD a segment, GB 0.035")  # the highest price
    operator = site.open("priced@example.com", "--operator", path=dev.url.removeprefix(site.url) + "/edit")
    operator.get_by_label("Prices by country").fill("GB 0.01\nnowhere 1")
    operator.get_by_role("button", name="Publish").click()
    expect(operator.locator(".wrong")).to_contain_text("ISO code")
    operator.get_by_label("Prices by country").fill("GB 0.01")
    operator.get_by_role("button", name="Publish").click()
    expect(operator.locator("dl.facts").first).to_contain_text("GB 0.01")


def test_whatsapp_editor_without_javascript_keeps_positions(site: Site, shoot: Shoot) -> None:
    page = site.open("plain@example.com", *TEAM, path=f"{HERE}/tpl_whatsapp/edit", color_scheme="dark")
    shoot(page, "template-whatsapp-dark")
    still = site.page(java_script_enabled=False)
    still.context.add_cookies(page.context.cookies())
    still.goto(f"{HERE}/tpl_whatsapp/edit")
    still.get_by_label("Example 1", exact=True).fill("P-1")
    still.get_by_role("button", name="Preview").click()
    frame = still.frame_locator("iframe[name=preview]")
    expect(frame.get_by_text("Acme: parcel P-1 is on its way.")).to_be_visible()
    expect(frame.locator("tbody tr")).to_have_text("1parcelP-1")
    still.get_by_role("button", name="Publish").click()
    expect(still.get_by_text("is in use.")).to_be_visible()


def test_template_change_by_viewer_returns_403(site: Site, shoot: Shoot) -> None:
    page = site.open(
        "eye@example.com", "--team", "team_acme", "--role", "viewer", path=f"{HERE}/tpl_short", viewport=PHONE
    )
    shoot(page, "template-phone")
    expect(page.get_by_role("link", name="Edit")).to_have_count(0)
    expect(page.get_by_role("button", name="Send test")).to_have_count(0)
    assert page.goto(f"{HERE}/tpl_short/edit").status == 403
    csrf = page.locator("[name=csrf]").first.input_value()
    for action in ("edit", "publish", "archive", "restore", "send", "approve", "refuse", "discard"):
        response = page.request.post(f"{site.url}{HERE}/tpl_short/{action}", form={"csrf": csrf, "version": "1"})
        assert response.status == 403, action
    dev = site.open("dev2@example.com", *TEAM, path=HERE)
    csrf = dev.locator("[name=csrf]").first.input_value()
    response = dev.request.post(f"{site.url}{HERE}/tpl_draft/approve", form={"csrf": csrf})
    assert response.status == 403


def test_html_field_highlights_text_and_marks_problems(site: Site, shoot: Shoot) -> None:
    page = site.open("surface@example.com", *TEAM, path=f"{HERE}/new?channel=email")
    words = page.get_by_label("HTML")
    expect(preview_frame(page).get_by_text("No text yet.")).to_be_visible()
    expect(page.locator("#editor .problems .error")).to_have_count(0)  # before typing
    words.fill('<p>Hello {{whim}}\n<img src="https://a.test/b.png">')
    lines = page.locator(".code:has([name=html]) .drawn > div")
    expect(lines).to_have_count(2)
    expect(lines.first.locator(".placeholder")).to_have_text("{{whim}}")
    expect(lines.nth(1).locator(".tag").first).to_have_text("<img")
    expect(page.locator(".drawn > .noted")).to_have_count(2)  # an open tag, and no alt
    expect(page.locator("[data-problems=html]")).to_contain_text("Line 2: an image has no alt text")
    expect(preview_frame(page).get_by_text("Suggestions")).to_be_hidden()  # the error is shown at the field
    expect(preview_frame(page).frame_locator("iframe").locator("span")).to_have_text("{{whim}}")  # a chip
    assert_fits(page, shoot, "template-surface")
    words.fill("")
    words.press("Control+]")
    words.press_sequentially("<p>\nHello")
    expect(words).to_have_value("  <p>\n  Hello")
    words.press("Tab")  # no keyboard trap
    expect(words).not_to_be_focused()


def test_preview_frame_keeps_its_own_security_policy(site: Site) -> None:
    page = site.open("policy@example.com", *TEAM)
    lines: list[str] = []
    page.on("console", lambda line: lines.append(line.text))
    for path in ("new?channel=email", "tpl_welcome/edit", "tpl_sms"):
        page.goto(f"{HERE}/{path}", wait_until="networkidle")
    assert not [line for line in lines if "Content Security Policy" in line]
    page.goto(f"{HERE}/new?channel=email")
    page.get_by_label("HTML").fill('<img src="/dashboard/static/icon.svg"> Hello')
    expect(preview_frame(page).frame_locator("iframe").get_by_text("Hello")).to_be_visible()
    assert any("Content Security Policy" in line for line in lines), "a mail may load nothing, not even our own files"


def test_insert_menu_writes_into_the_last_used_field(site: Site) -> None:
    page = site.open("insert@example.com", *TEAM, path=f"{HERE}/new?channel=email")
    page.get_by_label("Subject").fill("Hi ")
    page.get_by_text("Insert", exact=True).press("Enter")
    page.get_by_role("button", name="Value", exact=True).press("Enter")
    expect(page.get_by_label("Subject")).to_have_value("Hi {{name}}")
    page.keyboard.type("first_name")  # the name is selected
    expect(page.get_by_label("Subject")).to_have_value("Hi {{first_name}}")
    page.get_by_label("HTML").focus()
    page.get_by_text("Insert", exact=True).click()
    page.get_by_role("button", name="List").click()
    expect(page.get_by_label("HTML")).to_have_value("{{#each items}}\n{{title}}\n{{/each}}")
    expect(page.get_by_label("Variable 1", exact=True)).to_have_value("first_name")
    expect(page.get_by_label("Fields of each item of variable 2")).to_have_value("title")
