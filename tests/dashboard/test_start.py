"""The quick start's snippets run as they stand; events and refused requests can be looked up."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.dashboard.conftest import Shoot, Site, sync_api
from tests.service import TOKENS, until

expect = sync_api.expect
VIEWER = ("--role", "viewer")
SHELLS = {"curl": ["sh", "-c"], "python": [sys.executable, "-c"], "node": ["node", "--input-type=module", "-e"]}


@pytest.mark.parametrize(("team", "key", "count"), [("team_acme", "ACME", 5), ("team_sandbox", "SANDBOX", 5)])
def test_every_snippet_works_as_it_stands(site: Site, shoot: Shoot, team: str, key: str, count: int) -> None:
    page = site.open(f"{team}@example.com", "--team", team, *VIEWER)
    environment = os.environ | {"HELIOGRAPH_KEY": TOKENS[key]}
    for language, shell in SHELLS.items():
        if language == "node" and not shutil.which("node"):
            continue  # the others run everywhere
        page.goto(f"/dashboard/teams/{team}/start?language={language}")
        shoot(page, f"start-{team}-{language}")
        snippets = page.locator(".block code").all_inner_texts()[1:]
        assert len(snippets) == count
        for text in snippets:
            done = subprocess.run([*shell, text], env=environment, capture_output=True, text=True, check=False)
            assert '"id"' in done.stdout, (text, done)


@pytest.mark.parametrize("template", ["tpl_welcome", "tpl_sms", "tpl_whatsapp"])
def test_the_curl_of_a_template_works_as_it_stands(site: Site, template: str) -> None:
    place = f"/dashboard/teams/team_acme/templates/{template}"
    page = site.open(f"{template}@example.com", "--team", "team_acme", *VIEWER, path=place)
    text = page.locator(".block code").inner_text()
    environment = os.environ | {"HELIOGRAPH_KEY": TOKENS["ACME"]}
    done = subprocess.run(["sh", "-c", text], env=environment, capture_output=True, text=True, check=False)
    assert '"id"' in done.stdout, (text, done)


def test_a_snippet_is_copied(site: Site) -> None:
    page = site.open("cop@example.com", "--team", "team_acme", *VIEWER, path="/dashboard/teams/team_acme/start")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").nth(1).click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").startswith("curl -sS http://127.0.0.1:")


def test_a_team_without_a_domain_is_told_so(site: Site) -> None:
    page = site.open("bar@example.com", "--team", "team_bare", *VIEWER, path="/dashboard/teams/team_bare/start")
    expect(page.locator(".notice")).to_contain_text("no domain that may send yet")


def test_a_refused_request_is_explained(site: Site, shoot: Shoot) -> None:
    place = "/dashboard/teams/team_acme/requests"
    refused = site.service.post("/v1/emails", {"to": "nobody", "subject": "S", "text": "secret words"})
    site.service.get("/v1/nothing")
    id_ = refused.headers["x-request-id"]
    page = site.open("req@example.com", "--team", "team_acme", *VIEWER, path=place)
    shoot(page, "requests")
    page.get_by_label("Request id").fill(id_)
    page.get_by_role("button", name="Find").click()
    expect(page.locator("details")).to_have_count(1)
    expect(page.locator("details")).to_contain_text(refused.code or "")
    expect(page.locator("details")).to_contain_text("What to do")
    expect(page.locator("main")).not_to_contain_text("secret words")
    shoot(page, "request")
    other = site.open("oth@example.com", "--team", "team_other", *VIEWER, path="/dashboard/teams/team_other/requests")
    expect(other.get_by_text("None refused")).to_be_visible()
    other.goto(f"/dashboard/teams/team_other/requests?id={id_}")
    expect(other.get_by_text("Not remembered")).to_be_visible()


def test_events_by_type(site: Site, shoot: Shoot) -> None:
    site.service.post("/v1/suppressions", {"email": "left@example.com"})
    assert site.service.get("/v1/nothing").status == 404
    until(lambda: site.service.get("/v1/events").json["data"])
    page = site.open("eva@example.com", "--team", "team_acme", *VIEWER, path="/dashboard/teams/team_acme/events")
    page.get_by_label("Type").select_option("suppression.*")
    page.get_by_role("button", name="Show").click()
    line = page.locator("details").filter(has_text="left@example.com")
    line.locator("summary").click()
    expect(line.locator("pre")).to_contain_text('"type": "suppression.created"')
    expect(page.get_by_text("email.delivered", exact=True)).to_have_count(1)  # in the list of types only
    shoot(page, "events")
