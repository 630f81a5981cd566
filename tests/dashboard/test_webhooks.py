"""Webhooks in the browser: added, failing, looked into, replayed, rotated, disabled, removed."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heliograph.dashboard.views.webhooks import told_again
from tests.dashboard.conftest import Shoot, Site, sync_api
from tests.forks import Forked
from tests.service import until

expect = sync_api.expect
HOOKS = "/dashboard/teams/team_other/webhooks"
DEVELOPER = ("--team", "team_other", "--role", "developer")
WORDS = ("--script", "/late=429:60,200", "--script", "/all=429:60,200")  # not tried again before the test does it


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[str]:
    """The address of a receiver that fails first."""
    arguments = ["--log", str(tmp_path / "got.jsonl"), *WORDS]
    process = Forked("from tests.channels.hook_receiver import main; main()", arguments, os.environ)
    with process.stdout:
        yield process.stdout.readline().strip()
        process.kill()
        process.wait()


def add(page: Any, url: str) -> str:
    """Add a webhook; answers its secret."""
    page.goto(HOOKS)
    page.get_by_label("URL").fill(url)
    page.get_by_role("button", name="Add it").click()
    return str(page.locator(".once code").inner_text())


def wait_for(page: Any, text: str) -> None:
    """Reload until the page says so."""

    def seen() -> bool:
        page.reload()
        return bool(page.locator("main").get_by_text(text, exact=True).count())

    until(seen)


def test_a_webhook_fails_and_is_replayed(site: Site, receiver: str, shoot: Shoot) -> None:
    page = site.open("hal@example.com", *DEVELOPER, path=HOOKS)
    shoot(page, "webhooks-none")
    assert add(page, f"{receiver}/late").startswith("whsec_")
    shoot(page, "webhook-new")
    page.get_by_role("button", name="Send a test event").click()
    page.wait_for_url("**/deliveries/evt_*")
    wait_for(page, "429")
    expect(page.locator("main")).to_contain_text("status 429")
    expect(page.locator("main")).to_contain_text('"type": "webhook.test"')
    expect(page.locator("main")).not_to_contain_text("whsec_")
    shoot(page, "webhook-delivery")
    page.goto(HOOKS)
    expect(page.get_by_role("row").filter(has_text="/late")).to_contain_text("failing")
    shoot(page, "webhooks")
    page.get_by_role("link", name="/late").click()
    shoot(page, "webhook-failing")
    page.locator("#deliveries").get_by_role("link").first.click()
    page.get_by_role("button", name="Replay").click()
    expect(page.locator(".flash")).to_have_text("1 event is told again.")
    wait_for(page, "delivered")
    page.goto(HOOKS)
    expect(page.get_by_role("row").filter(has_text="/late")).to_contain_text("enabled")


def test_all_that_failed_and_a_span_of_time(site: Site, receiver: str, shoot: Shoot) -> None:
    page = site.open("meg@example.com", *DEVELOPER)
    add(page, f"{receiver}/all")
    page.get_by_role("button", name="Send a test event").click()
    page.wait_for_url("**/deliveries/evt_*")
    wait_for(page, "429")
    page.get_by_role("link", name="/all").click()
    page.get_by_role("link", name="Failed only").click()
    expect(page.locator("#deliveries tbody tr")).to_have_count(1)
    shoot(page, "webhook-failed-only")
    page.get_by_role("button", name="Replay all that failed").click()
    expect(page.locator(".flash")).to_have_text("1 event is told again.")
    wait_for(page, "delivered")
    page.get_by_role("link", name="Failed only").click()
    expect(page.locator("#deliveries")).to_contain_text("None failed")
    page.get_by_role("link", name="All", exact=True).click()
    expect(page.locator("#deliveries tbody tr")).to_have_count(1)
    for after, before, told in (
        ("2020-01-01T00:00", "2020-01-02T00:00", "0 events are told again."),
        ("2020-01-01T00:00", "2100-01-01T00:00", "events? (is|are) told again"),
    ):
        page.get_by_text("A span of time").click()
        page.get_by_label("After (UTC)").fill(after)
        page.get_by_label("Before (UTC)").fill(before)
        page.get_by_role("button", name="Replay", exact=True).click()
        expect(page.locator(".flash")).to_have_text(re.compile(told))
    page.get_by_text("A span of time").click()
    page.get_by_label("After (UTC)").fill("2020-01-02T00:00")
    page.get_by_label("Before (UTC)").fill("2020-01-01T00:00")
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.get_by_role("alert")).to_have_text("This is not later than the beginning.")


def test_a_replay_that_took_the_most_says_so() -> None:
    assert told_again(99_999) == "99,999 events are told again."
    assert told_again(100_000).endswith("That is the most at once: replay again for the rest.")


def test_change_rotate_disable_remove(site: Site, receiver: str) -> None:
    page = site.open("bob@example.com", *DEVELOPER)
    first = add(page, f"{receiver}/change")
    page.get_by_label("Events").fill("sms.* nonsense")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("There is no event 'nonsense'.")
    page.get_by_label("Events").fill("sms.*, email.bounced")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("dl")).to_contain_text("sms.* email.bounced")
    page.get_by_role("button", name="Rotate the secret").click()
    assert page.locator(".once code").inner_text() != first
    page.get_by_role("button", name="Disable").click()
    expect(page.get_by_role("button", name="Send a test event")).to_have_count(0)
    page.get_by_role("button", name="Enable").click()
    expect(page.get_by_role("button", name="Send a test event")).to_be_visible()
    page.get_by_role("button", name="Remove").click()
    expect(page.locator(".flash")).to_have_text("The webhook is removed.")
    expect(page.get_by_text("/change")).to_have_count(0)


def test_wrong_addresses_and_those_who_only_look(site: Site) -> None:
    page = site.open("zoe@example.com", *DEVELOPER, path=HOOKS)
    page.get_by_label("URL").fill("http://10.0.0.1/hook")
    page.get_by_role("button", name="Add it").click()
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_label("URL")).to_have_value("http://10.0.0.1/hook")
    viewer = site.open("lou@example.com", "--team", "team_other", "--role", "viewer", path=HOOKS)
    expect(viewer.get_by_role("button", name="Add it")).to_have_count(0)
    token = viewer.locator("input[name=csrf]").first.input_value()
    sent = viewer.request.post(f"{site.url}{HOOKS}", form={"url": "https://a.test", "events": "*", "csrf": token})
    assert sent.status == 403
