"""Signing in and out: by password, by link, with a code; the first start; what guards all this."""

import base64
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from heliograph.dashboard.passwords import TRIES_MAX
from heliograph.dashboard.totp import STEP_MS, code_at, step_of
from tests.dashboard.conftest import Shoot, Site, sync_api
from tests.forks import Forked
from tests.people import PASSWORD, let_in
from tests.service import PATIENCE_S, PROGRAM

expect = sync_api.expect
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def sign_in(page: Any, email: str, password: str = PASSWORD) -> None:
    page.goto("/dashboard/sign-in")
    page.get_by_label("Email address").fill(email)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def _step() -> int:
    return int(time.time() * 1000) // STEP_MS


def test_a_link_a_password_out_and_in_again(site: Site, shoot: Shoot) -> None:
    page = site.open("ada@example.com", "--operator")
    expect(page.get_by_role("heading", name="Teams")).to_be_visible()
    shoot(page, "teams")
    page.locator("header .mine > summary").click()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/sign-in")
    sign_in(page, "ada@example.com", "wrong password")
    assert page.get_by_role("alert").inner_text() == "This address and password do not belong together."
    shoot(page, "sign-in")
    sign_in(page, "ada@example.com")
    page.wait_for_url(re.compile("/dashboard$"))


def test_a_link_is_good_once(site: Site, shoot: Shoot) -> None:
    link = site.add("once@example.com")
    page = site.page()
    assert page.goto(link).status == 200
    shoot(page, "link")
    page.get_by_label("New password").fill("too short")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("alert")).to_have_text("A password has 10 to 200 characters.")
    page.get_by_label("New password").fill(PASSWORD)
    page.get_by_role("button", name="Continue").click()
    page.wait_for_url("**/dashboard")
    assert site.page().goto(link).status == 404


def test_a_code_at_sign_in(site: Site, shoot: Shoot) -> None:
    page = site.open("coded@example.com", path="/dashboard/account")
    page.get_by_role("link", name="Turn on").click()
    expect(page.get_by_alt_text("QR code with the secret below")).to_be_visible()
    page.get_by_text("Or type the secret").click()
    secret = base64.b32decode(page.locator("details code").inner_text().replace(" ", ""))
    shoot(page, "totp")
    page.get_by_label("Code").fill("000 00")
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_role("button", name="Turn on").click()
    expect(page.get_by_role("alert")).to_contain_text("wrong or too old")
    page.get_by_label("Code").fill(used := code_at(secret, step := _step()))
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_role("button", name="Turn on").click()
    recovery = page.locator("pre").inner_text().split()
    assert len(set(recovery)) == 10
    shoot(page, "recovery")

    other = site.page()
    for code, is_good in (
        ("00000", False),
        (used, False),
        (recovery[0].upper(), True),
        (recovery[0], False),
        ("", True),
    ):
        other.context.clear_cookies()
        sign_in(other, "coded@example.com")
        other.get_by_label("Code").fill(code or code_at(secret, max(_step(), step + 1)))
        other.get_by_role("button", name="Sign in").click()
        if is_good:
            expect(other.get_by_text("coded@example.com")).to_be_visible()
        else:
            expect(other.get_by_role("alert")).to_contain_text("This code is wrong, or was used before")
            assert other.goto("/dashboard/account").url.startswith(f"{site.url}/dashboard/sign-in")

    page.goto("/dashboard/account")
    expect(page.get_by_text("9 recovery codes left")).to_be_visible()
    shoot(page, "account")
    page.goto(site.service.run("user", "link", "coded@example.com", "--public-url", site.url).stdout.strip())
    for code, is_good in (("00000", False), (recovery[1], True)):  # a link is no way around
        page.get_by_label("New password").fill(PASSWORD * 2)
        page.get_by_label("Code").fill(code)
        page.get_by_role("button", name="Continue").click()
        expect(page.get_by_role("status" if is_good else "alert")).to_be_visible()
    page.goto("/dashboard/account")
    page.get_by_label("Code").fill(recovery[2])
    page.get_by_role("button", name="Turn off").click()
    expect(page.get_by_role("status")).to_have_text("Two-factor authentication is off.")


def test_a_new_password_ends_the_other_sessions(site: Site) -> None:
    here = site.open("moved@example.com", path="/dashboard/account")
    there = site.page()
    sign_in(there, "moved@example.com")
    there.wait_for_url("**/dashboard")
    here.get_by_label("Current password").fill(PASSWORD)
    here.get_by_label("New password").fill(PASSWORD * 2)
    here.get_by_role("button", name="Change password").click()
    expect(here.get_by_role("status")).to_contain_text("Your password is changed")
    there.goto("/dashboard/account")
    assert "/sign-in" in there.url
    sign_in(there, "moved@example.com", PASSWORD * 2)
    here.reload()
    here.get_by_role("button", name="Sign out everywhere else").click()
    there.goto("/dashboard/account")
    assert "/sign-in" in there.url


def test_too_many_wrong_passwords(site: Site) -> None:
    site.add("guessed@example.com")
    let_in(site.service.database, "guessed@example.com")
    form = urlencode({"email": "guessed@example.com", "password": "wrong"}).encode()
    answers = [site.service.post("/dashboard/sign-in", form, key=None, headers=FORM) for _ in range(TRIES_MAX + 1)]
    assert [answer.status for answer in answers] == [403] * TRIES_MAX + [429]
    assert b"Try again in 15 minutes" in answers[-1].raw


def test_behind_a_proxy_each_has_an_address_of_their_own(site: Site) -> None:
    page = site.page(extra_http_headers={"X-Forwarded-For": "203.0.113.7"})
    page.request.post(site.add("far@example.com"), form={"password": PASSWORD})
    page.goto("/dashboard/account")
    expect(page.get_by_role("cell", name="203.0.113.7")).to_be_visible()


@pytest.mark.parametrize(
    ("seconds", "code"),  # RFC 6238, appendix B, the last six digits
    [
        (59, "287082"),
        (1111111109, "081804"),
        (1111111111, "050471"),
        (1234567890, "005924"),
        (2000000000, "279037"),
        (20000000000, "353130"),
    ],
)
def test_codes_of_the_standard(seconds: int, code: str) -> None:
    secret, now = b"12345678901234567890", seconds * 1000
    assert code_at(secret, now // STEP_MS) == code
    assert step_of(secret, code, now + STEP_MS) == now // STEP_MS
    assert step_of(secret, code, now + 2 * STEP_MS) is None


@contextmanager
def first_start(folder: Path) -> Iterator[str]:
    """The link that `heliograph serve` prints while there is nobody."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HELIOGRAPH_")}
    process = Forked(PROGRAM, ["serve", "--listen", "127.0.0.1:0", "--data", "data"], environment, folder)
    with process.stdout:
        try:
            yield next(line.split()[-1] for line in process.stdout if line.startswith("First operator: "))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)


def test_the_first_start_makes_the_operator(site: Site, shoot: Shoot, tmp_path: Path) -> None:
    with first_start(tmp_path):
        pass  # nobody follows this link
    with first_start(tmp_path) as link:
        page = site.page()
        page.goto(link)
        shoot(page, "first")
        page.locator("form").evaluate("form => form.noValidate = true")
        page.get_by_label("Email address").fill("nobody")
        page.get_by_label("New password").fill(PASSWORD)
        page.get_by_role("button", name="Continue").click()
        expect(page.get_by_role("alert")).to_have_text("This is not an email address.")
        page.get_by_label("Email address").fill("Boss@Example.com")
        page.get_by_label("Your name").fill("The Boss")
        page.get_by_label("New password").fill(PASSWORD)
        page.get_by_role("button", name="Continue").click()
        page.locator("header .mine > summary").click()
        page.locator("header").get_by_role("link", name="Your account").click()
        expect(page.get_by_label("Your name")).to_have_value("The Boss")
        expect(page.get_by_role("link", name="Operator")).to_be_visible()
        assert page.goto(link).status == 404


@pytest.mark.parametrize(
    "path", ["/dashboard", "/dashboard/account", "/dashboard/teams/team_acme", "/dashboard/operator"]
)
def test_nobody_is_sent_to_the_door(site: Site, path: str) -> None:
    answer = site.service.get(path, key=None)
    assert (answer.status, answer.headers["location"]) == (303, f"/dashboard/sign-in?next={path}")


@pytest.mark.parametrize("path", ["", "/keys", "/team"])
def test_a_team_that_is_not_there_answers_as_one_of_others(site: Site, path: str) -> None:
    page = site.open(f"outside{path.replace('/', '.')}@example.com")
    mine = {"Cookie": "; ".join(f"{one['name']}={one['value']}" for one in page.context.cookies())}
    for headers, status in (({}, 303), (mine, 404)):
        answers = [
            site.service.ask(method, f"/dashboard/teams/{team}{path}", key=None, headers=headers)
            for method in ("GET", "POST")
            for team in ("team_acme", "team_none")
        ]
        alike = [
            (
                answer.status,
                answer.raw,
                {
                    name: value.replace("team_none", "team_acme")
                    for name, value in answer.headers.items()
                    if name != "x-request-id"
                },
            )
            for answer in answers
        ]
        assert alike[0] == alike[1]
        assert alike[2] == alike[3]
        assert alike[0][0] == status


def test_where_one_goes_after_the_door(site: Site) -> None:
    site.open("next@example.com")
    for next_page, ends_at in (
        ("/dashboard/account", "/dashboard/account"),
        ("https://evil.test/", "/dashboard"),
        ("//evil.test/dashboard", "/dashboard"),
        ("/dashboard\r\nSet-Cookie: a=b", "/dashboard"),
    ):
        form = urlencode({"email": "next@example.com", "password": PASSWORD}).encode()
        answer = site.service.post(f"/dashboard/sign-in?{urlencode({'next': next_page})}", form, key=None, headers=FORM)
        assert (answer.status, answer.headers["location"]) == (303, ends_at)
        assert "a=b" not in answer.headers["set-cookie"]


def test_a_form_of_another_site_is_refused(site: Site) -> None:
    page = site.open("eve@example.com")
    answer = page.request.post(f"{site.url}/dashboard/account/password", form={"new": PASSWORD * 2, "csrf": "guess"})
    assert answer.status == 403
    elsewhere = FORM | {"Origin": "https://evil.test"}
    assert site.service.post("/dashboard/sign-in", b"email=a", key=None, headers=elsewhere).status == 403


def test_headers_that_guard_every_page(site: Site) -> None:
    policy = site.service.get("/dashboard/sign-in", key=None).headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-inline" not in policy
