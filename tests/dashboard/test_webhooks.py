"""Webhooks in the browser: adding, failures, inspection, replay, rotation, disabling, removal."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heliograph.dashboard.views.webhooks import replay_notice
from tests.dashboard.conftest import Shoot, Site, assert_fits, sync_api
from tests.forks import Forked

expect = sync_api.expect
HOOKS = "/dashboard/teams/team_other/webhooks"
DEVELOPER = ("--team", "team_other", "--role", "developer")
WORDS = ("--script", "/late=429:60,200", "--script", "/all=429:60,200")  # not retried before the test does


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[str]:
    """URL of a receiver that fails at first."""
    arguments = ["--log", str(tmp_path / "got.jsonl"), *WORDS]
    process = Forked("from tests.carriers.hook_receiver import main; main()", arguments, os.environ)
    with process.stdout:
        yield process.stdout.readline().strip()
        process.kill()
        process.wait()


def add_webhook(page: Any, url: str) -> str:
    """Add a webhook and return its secret."""
    page.goto(f"{HOOKS}/new")
    page.get_by_label("Endpoint URL").fill(url)
    page.get_by_role("button", name="Create webhook").click()
    return str(page.locator(".once code").inner_text())


def test_webhook_is_created_tested_and_replayed(site: Site, receiver: str, shoot: Shoot) -> None:
    """Each response appears without a reload."""
    page = site.open("hal@example.com", *DEVELOPER, path=HOOKS)
    page.get_by_role("link", name="New webhook").click()
    page.get_by_label("Endpoint URL").fill(f"{receiver}/late")
    page.get_by_label("Format").select_option("Resend")
    page.get_by_role("button", name="Create webhook").click()
    assert page.locator(".once code").inner_text().startswith("whsec_")
    assert_fits(page, shoot, "webhook-new")
    page.get_by_role("button", name="Send test event").click()
    tested = page.locator("#tested")
    expect(tested.locator(".badge")).to_have_text("429")
    expect(tested).to_contain_text("Your endpoint is rate limiting requests.")
    expect(tested).to_contain_text("status 429")  # the receiver's response
    expect(page.locator("#trouble")).to_contain_text("Deliveries are failing")
    assert_fits(page, shoot, "webhook-failing")
    page.get_by_role("link", name="Request and response").click()
    expect(page.locator("main")).to_contain_text('"type": "webhook.test"')
    expect(page.locator("main")).to_contain_text("svix-signature: …")
    expect(page.locator("main")).not_to_contain_text("whsec_")
    expect(page.locator("#standing")).to_contain_text("Next retry")
    assert_fits(page, shoot, "webhook-delivery")
    page.get_by_role("button", name="Retry now").click()
    expect(page.locator(".flash")).to_have_text("1 event is being sent again.")
    expect(page.locator("#standing")).to_contain_text("Your endpoint responded with")
    page.goto(HOOKS)
    expect(page.get_by_role("row").filter(has_text="/late").locator(".badge").first).to_have_text("Active")


def test_failed_events_are_replayed_by_time_range(site: Site, receiver: str, shoot: Shoot) -> None:
    page = site.open("meg@example.com", *DEVELOPER)
    add_webhook(page, f"{receiver}/all")
    page.get_by_role("button", name="Send test event").click()
    expect(page.locator("#tested .badge")).to_have_text("429")
    page.get_by_role("link", name="Not delivered").click()
    expect(page.locator("#deliveries tbody tr")).to_have_count(1)
    shoot(page, "webhook-failed-only")
    page.get_by_role("button", name="Retry all now").click()
    expect(page.locator(".flash")).to_have_text("1 event is being sent again.")
    expect(page.locator("#deliveries .badge.delivered")).to_be_visible()
    page.get_by_role("link", name="Not delivered").click()
    expect(page.locator("#deliveries")).to_contain_text("Everything is delivered")
    page.get_by_role("link", name="All", exact=True).click()
    expect(page.locator("#deliveries tbody tr")).to_have_count(1)
    for after, before, expected_notice in (
        ("2020-01-01T00:00", "2020-01-02T00:00", "0 events are being sent again."),
        ("2020-01-01T00:00", "2100-01-01T00:00", "events? (is|are) being sent again"),
    ):
        page.get_by_text("Choose a period").click()
        page.get_by_label("After (UTC)").fill(after)
        page.get_by_label("Before (UTC)").fill(before)
        page.get_by_role("button", name="Replay", exact=True).click()
        expect(page.locator(".flash")).to_have_text(re.compile(expected_notice))
    page.get_by_text("Choose a period").click()
    page.get_by_label("After (UTC)").fill("2020-01-02T00:00")
    page.get_by_label("Before (UTC)").fill("2020-01-01T00:00")
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.get_by_role("alert")).to_have_text("The end must be after the start.")


def test_replay_notice_at_maximum_says_so() -> None:
    assert replay_notice(99_999) == "99,999 events are being sent again."
    assert replay_notice(100_000).endswith("This is the maximum at once. Replay again for the rest.")


@pytest.mark.in_full
def test_webhook_is_changed_rotated_disabled_and_removed(site: Site, receiver: str) -> None:
    page = site.open("bob@example.com", *DEVELOPER)
    first = add_webhook(page, f"{receiver}/change")
    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_label("All events").uncheck()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_have_text("Choose at least one event.")
    page.get_by_label("SMS sms.*").check()
    page.get_by_label("Bounced (Email)").check()
    page.get_by_role("button", name="Save").click()
    expect(page.locator("dl")).to_contain_text("email.bounced, sms.*")
    page.get_by_role("button", name="Rotate").click()
    assert page.locator(".once code").inner_text() != first
    page.get_by_role("button", name="Turn off").click()
    expect(page.locator("#trouble")).to_contain_text("A member of your team turned it off")
    expect(page.get_by_role("button", name="Send test event")).to_have_count(0)
    page.get_by_role("button", name="Turn on").click()
    expect(page.get_by_role("button", name="Send test event")).to_be_visible()
    page.get_by_role("link", name="Edit", exact=True).click()
    expect(page.get_by_label("SMS sms.*")).to_be_checked()
    expect(page.get_by_label("All events")).not_to_be_checked()
    page.get_by_role("button", name="Delete webhook").click()
    expect(page.locator(".flash")).to_have_text("Webhook deleted.")
    expect(page.get_by_text("/change")).to_have_count(0)


def test_invalid_webhook_url_and_viewer_are_refused(site: Site) -> None:
    page = site.open("zoe@example.com", *DEVELOPER, path=f"{HOOKS}/new")
    page.get_by_label("Endpoint URL").fill("http://10.0.0.1/hook")
    page.get_by_role("button", name="Create webhook").click()
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_label("Endpoint URL")).to_have_value("http://10.0.0.1/hook")
    expect(page.locator(".box pre")).to_contain_text("heliograph listen --forward http://10.0.0.1/hook --key @key.txt")
    viewer = site.open("lou@example.com", "--team", "team_other", "--role", "viewer", path=HOOKS)
    expect(viewer.get_by_role("link", name="New webhook")).to_have_count(0)
    token = viewer.locator("input[name=csrf]").first.input_value()
    sent = viewer.request.post(f"{site.url}{HOOKS}", form={"url": "https://a.test", "all": "yes", "csrf": token})
    assert sent.status == 403


def test_webhook_bin_receives_event(site: Site, shoot: Shoot) -> None:
    page = site.open("bin@example.com", "--team", "team_udh", "--role", "developer", path=HOOKS.replace("other", "udh"))
    assert_fits(page, shoot, "webhooks-none")
    page.get_by_role("button", name="Try a webhook bin").click()
    expect(page.locator("#tested .badge")).to_have_text("200")
    expect(page.locator("#tested")).to_contain_text('"signature": "valid"')
    expect(page.locator("#deliveries tbody tr")).to_have_count(1)
    assert_fits(page, shoot, "webhook-bin")
    url = page.locator("dt:has-text('URL') + dd code").inner_text().removeprefix(site.url)
    assert site.service.ask("POST", url, b"{}", key=None).json["signature"] == "missing or in another format"
    others = (url[:-1] + ("0" if url[-1] != "0" else "1"), url.replace("team_udh", "team_other"))
    assert {site.service.ask("POST", other, b"{}", key=None).status for other in others} == {404}
    page.goto(HOOKS.replace("other", "udh"))
    expect(page.get_by_role("button", name="Try a webhook bin")).to_have_count(0)  # it has one
