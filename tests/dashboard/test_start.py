"""The quick start's snippets run unchanged; requests and events can be looked up."""

import os
import re
import shutil
import subprocess
import sys

import msgspec
import pytest

from heliograph.dashboard.views.events import event_subject, group_by_recipient, type_text
from heliograph.domain.events import StoredEvent
from tests.dashboard.conftest import PHONE, Shoot, Site, assert_fits, sync_api
from tests.service import TOKENS, until

expect = sync_api.expect
VIEWER = ("--role", "viewer")
SHELLS = {"curl": ["sh", "-c"], "python": [sys.executable, "-c"], "node": ["node", "--input-type=module", "-e"]}

# parses the page instead of rendering it, which takes a tenth of the time
SNIPPET = """async (path) => new DOMParser().parseFromString(await (await fetch(path)).text(), "text/html")
  .querySelectorAll(".block code")[1].textContent"""


@pytest.mark.parametrize(
    ("team", "key"), [("team_acme", "ACME"), pytest.param("team_sandbox", "SANDBOX", marks=pytest.mark.in_full)]
)
def test_start_snippets_run_unchanged(site: Site, shoot: Shoot, team: str, key: str) -> None:
    page = site.open(f"{team}@example.com", "--team", team, *VIEWER)
    environment = os.environ | {"HELIOGRAPH_KEY": TOKENS[key]}
    for language, shell in SHELLS.items():
        if language == "node" and not shutil.which("node"):
            continue  # the others run everywhere
        page.goto(f"/dashboard/teams/{team}/start?language={language}")
        for kind in ("email", "template", "sms", "whatsapp", "code"):
            text = page.evaluate(SNIPPET, f"/dashboard/teams/{team}/start?language={language}&send={kind}")
            done = subprocess.run([*shell, text], env=environment, capture_output=True, text=True, check=False)
            assert re.search(r"(eml|sms|wam|vrf)_\w{26}", done.stdout), (text, done)
        shoot(page, f"start-{team}-{language}")


def test_first_request_appears_live_and_on_phone(site: Site, shoot: Shoot) -> None:
    path = "/dashboard/teams/team_other/start"
    page = site.open("fir@example.com", "--team", "team_other", *VIEWER, path=path, viewport=PHONE)
    expect(page.locator(".waits")).to_contain_text("Waiting for your first request")
    site.service.post("/v1/sms", {}, key="OTHER")
    expect(page.locator("#seen")).to_contain_text("POST /v1/sms")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shoot(page, "start-phone")


@pytest.mark.parametrize("template", ["tpl_welcome", "tpl_sms", "tpl_whatsapp"])
def test_template_curl_snippet_runs_unchanged(site: Site, template: str) -> None:
    path = f"/dashboard/teams/team_acme/templates/{template}"
    page = site.open(f"{template}@example.com", "--team", "team_acme", *VIEWER, path=path)
    text = page.locator(".block code").inner_text()
    environment = os.environ | {"HELIOGRAPH_KEY": TOKENS["ACME"]}
    done = subprocess.run(["sh", "-c", text], env=environment, capture_output=True, text=True, check=False)
    assert re.search(r"(eml|sms|wam|vrf)_\w{26}", done.stdout), (text, done)


def test_snippet_is_copied_to_clipboard(site: Site) -> None:
    page = site.open("cop@example.com", "--team", "team_acme", *VIEWER, path="/dashboard/teams/team_acme/start")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").nth(1).click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").startswith("curl -sS http://127.0.0.1:")


def test_start_page_without_domain_says_so(site: Site) -> None:
    page = site.open("bar@example.com", "--team", "team_bare", *VIEWER, path="/dashboard/teams/team_bare/start")
    expect(page.locator(".box")).to_contain_text("no verified domain yet")


@pytest.mark.in_full
def test_request_log_is_searched_and_refusals_explained(site: Site, shoot: Shoot) -> None:
    path = "/dashboard/teams/team_acme/requests"
    page = site.open("req@example.com", "--team", "team_acme", *VIEWER, path=path)
    refused = site.service.post("/v1/emails", {"to": "nobody", "subject": "S", "text": "secret words"})
    taken = site.service.get("/v1/me")
    id_ = refused.headers["x-request-id"]
    expect(page.locator(f'[data-key="{id_}"]')).to_be_visible()  # without a reload
    expect(page.locator(f'[data-key="{taken.headers["x-request-id"]}"]')).to_contain_text("GET /v1/me")
    assert_fits(page, shoot, "requests")
    page.get_by_label("Status").select_option("2")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(f'[data-key="{id_}"]')).to_have_count(0)
    page.get_by_label("Request ID").fill(id_)
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".box")).to_contain_text("What to do")
    expect(page.locator("main")).to_contain_text(refused.code or "")
    expect(page.locator("main")).not_to_contain_text("secret words")
    assert_fits(page, shoot, "request")


def test_events_are_grouped_by_message_and_recipient() -> None:
    def event(number: int, type_: str, message: str, to: str | None) -> StoredEvent:
        record = msgspec.json.encode({"id": message}).decode()
        return StoredEvent(f"evt_{number}", type_, number, number, to, None, None, None, None, record, 0, "to")

    sent = [
        event(5, "email.delivered", "eml_1", "a@x.test"),
        event(4, "email.bounced", "eml_1", "b@x.test"),
        event(3, "sms.sent", "sms_1", "+1"),
        event(2, "email.sent", "eml_1", "a@x.test"),
    ]
    assert [[item.sequence for item in group] for group in group_by_recipient(sent)] == [[5, 2], [4], [3]]
    assert [type_text(item) for item in ("sms.sent", "opt_out.created", "verification.verified")] == [
        *("SMS sent", "Opt out created", "Code confirmed")
    ]


def test_event_of_several_recipients_lists_them_with_commas() -> None:
    record = msgspec.json.encode({"id": "eml_1", "to": ["ada@example.com", "bob@example.com"]}).decode()
    event = StoredEvent("evt_1", "email.sent", 1, 1, None, None, None, None, None, record, 0, "to")
    assert event_subject(event) == "ada@example.com, bob@example.com"


def test_events_are_filtered_by_type(site: Site, shoot: Shoot) -> None:
    site.service.post("/v1/suppressions", {"email": "left@example.com"})
    assert site.service.get("/v1/nothing").status == 404
    until(lambda: site.service.get("/v1/events").json["data"])
    path = "/dashboard/teams/team_acme/events?type=suppression.*"
    page = site.open("eva@example.com", "--team", "team_acme", *VIEWER, path=path)
    expect(page.locator("select[name=type] optgroup[label=Suppression] option")).to_contain_text(
        ["Suppression: all", "Suppression created (suppression.created)"]
    )
    expect(page.locator("#events").get_by_text("Email delivered")).to_have_count(0)
    expect(page.get_by_role("rowheader", name="Today")).to_have_count(1)
    assert_fits(page, shoot, "events")
    page.get_by_role("row", name="left@example.com").get_by_role("link").click()
    expect(page.locator("pre")).to_contain_text('"type": "suppression.created"')
    assert_fits(page, shoot, "event")
