"""The template editor as people use it: by keyboard alone, and as a newcomer who reads no documentation."""

from typing import Any

from tests.dashboard.conftest import Site, sync_api

expect = sync_api.expect
DEVELOPER = ("--team", "team_acme", "--role", "developer")
HERE = "/dashboard/teams/team_acme/templates"
STOPS_MAX = 60  # presses of Tab from one control to another
FOCUSED = """() => {
  const { activeElement: it } = document, label = it.labels?.[0]?.innerText ?? it.ariaLabel ?? it.innerText ?? "";
  return label.trim().split("\\n")[0];
}"""


def tab_to(page: Any, name: str, key: str = "Tab") -> None:
    """Press Tab, or Shift+Tab, until the control with this name has the focus, as someone without a mouse does."""
    passed = []
    for _ in range(STOPS_MAX):
        passed.append(page.evaluate(FOCUSED))
        if passed[-1] == name:
            return
        page.keyboard.press(key)
    raise AssertionError(f"{name!r} is not reached: {passed}")


def test_template_is_made_by_keyboard_alone(site: Site) -> None:
    page = site.open("keys@example.com", *DEVELOPER, path=f"{HERE}/new?channel=email")
    page.keyboard.type("Receipt")  # the name has the focus
    tab_to(page, "Subject")
    page.keyboard.type("Your receipt")
    tab_to(page, "HTML")
    page.keyboard.type("<p>Hi ")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate(FOCUSED) == "Insert"
    page.keyboard.press("Enter")
    tab_to(page, "Value")
    page.keyboard.press("Enter")
    page.keyboard.type("name")  # in place of the inserted name, which is selected
    expect(page.get_by_label("HTML")).to_have_value("<p>Hi {{name}}")
    expect(page.get_by_label("HTML")).to_be_focused()
    page.keyboard.press("End")
    page.keyboard.type("</p>")
    tab_to(page, "Plain text")
    page.keyboard.type("Hi {{name}}")
    tab_to(page, "Example 1")
    expect(page.get_by_label("Example 1")).to_have_value("Grace Hopper")
    tab_to(page, "Add a language")
    page.keyboard.type("de")
    tab_to(page, "Add")
    page.keyboard.press("Enter")
    page.get_by_label("Subject (de)").wait_for()
    tab_to(page, "Subject (de)")
    page.keyboard.type("Ihre Rechnung")  # the copy of the default is selected
    expect(page.get_by_label("Subject (de)")).to_have_value("Ihre Rechnung")
    tab_to(page, "Publish", "Shift+Tab")  # the bar stands above the form
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Receipt", level=1)).to_be_visible()
    expect(page.get_by_text("In use", exact=True).first).to_be_visible()


def test_newcomer_makes_bilingual_template_without_failed_save(site: Site) -> None:
    page = site.open("newcomer@example.com", *DEVELOPER, path="/dashboard/teams/team_acme")
    statuses: list[int] = []
    page.on("response", lambda response: statuses.append(response.status))
    page.get_by_role("link", name="Templates").click()
    page.get_by_role("link", name="New template").click()
    page.get_by_role("link", name="Email").first.click()
    page.get_by_label("Name", exact=True).fill("Order shipped")
    preview = page.frame_locator("iframe.shown-template:visible").first
    page.get_by_label("Subject").fill("Order {{order_id}} is on its way")
    expect(preview.get_by_text("Order 4711 is on its way")).to_be_visible()
    expect(preview.get_by_text("Not ready to save")).to_have_count(0)  # the text is still empty, and not wrong yet
    expect(page.locator(".problems .error")).to_have_count(0)
    page.get_by_label("Plain text").fill("Hi {{name}},\n{{#if gift}}Your gift is wrapped.{{/if}}\n")
    page.get_by_label("Plain text").press("ControlOrMeta+End")
    page.get_by_text("Insert", exact=True).click()
    page.get_by_role("button", name="List").click()
    expect(preview.get_by_text("Hi Grace Hopper")).to_be_visible()
    expect(preview.get_by_text("Your gift is wrapped.")).to_be_visible()
    expect(preview.get_by_text("Green tea")).to_be_visible()
    expect(preview.get_by_text("Tea cup")).to_be_visible()
    page.get_by_label("Add a language").fill("de")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_label("Subject (de)").fill("Bestellung {{order_id}} ist unterwegs")
    page.get_by_label("Plain text (de)").fill(
        "Hallo {{name}},\n{{#if gift}}Ihr Geschenk ist verpackt.{{/if}}\n{{#each items}}\n{{title}}\n{{/each}}"
    )
    expect(preview.get_by_text("Hallo Grace Hopper")).to_be_visible()
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("heading", name="Order shipped", level=1)).to_be_visible()
    expect(page.get_by_text("In use", exact=True).first).to_be_visible()
    page.get_by_role("link", name="de", exact=True).click()
    expect(preview.get_by_text("Hallo Grace Hopper")).to_be_visible()
    assert max(statuses) < 400
