"""Signing in and out by password, link and code; the first start; protection against abuse."""

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

from heliograph.dashboard.passwords import ATTEMPTS_MAX
from heliograph.dashboard.totp import TIME_STEP_MS, code_at, find_time_step
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


def _totp_step() -> int:
    return int(time.time() * 1000) // TIME_STEP_MS


def test_invited_person_sets_password_and_signs_in_again(site: Site, shoot: Shoot) -> None:
    page = site.open("ada@example.com", "--operator")
    expect(page.get_by_role("heading", name="Teams")).to_be_visible()
    shoot(page, "teams")
    page.locator("header .mine > summary").click()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/sign-in")
    sign_in(page, "ada@example.com", "wrong password")
    assert page.get_by_role("alert").inner_text() == "Wrong email address or password."
    shoot(page, "sign-in")
    sign_in(page, "ada@example.com")
    page.wait_for_url(re.compile("/dashboard$"))


def test_invitation_link_works_once(site: Site, shoot: Shoot) -> None:
    link = site.add("once@example.com")
    page = site.page()
    assert page.goto(link).status == 200
    shoot(page, "link")
    page.get_by_label("New password").fill("too short")
    page.get_by_role("button", name="Create account").click()
    expect(page.get_by_role("alert")).to_have_text("Passwords must have 10 to 200 characters.")
    page.get_by_label("New password").fill(PASSWORD)
    page.get_by_role("button", name="Create account").click()
    page.wait_for_url("**/dashboard")
    assert site.page().goto(link).status == 404


def test_sign_in_with_totp_requires_code(site: Site, shoot: Shoot) -> None:
    page = site.open("coded@example.com", path="/dashboard/account")
    page.get_by_role("link", name="Turn on").click()
    expect(page.get_by_alt_text("QR code with the secret below")).to_be_visible()
    secret = base64.b32decode(page.locator(".form .copyable code").inner_text().replace(" ", ""))
    shoot(page, "totp")
    page.get_by_label("Code").fill("000 00")
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_role("button", name="Turn on").click()
    expect(page.get_by_role("alert")).to_contain_text("wrong or expired")
    page.get_by_label("Code").fill(used := code_at(secret, step := _totp_step()))
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
        other.get_by_label("Code").fill(code or code_at(secret, max(_totp_step(), step + 1)))
        other.get_by_role("button", name="Sign in").click()
        if is_good:
            expect(other.get_by_text("coded@example.com")).to_be_visible()
        else:
            expect(other.get_by_role("alert")).to_contain_text("This code is wrong or was already used")
            assert other.goto("/dashboard/account").url.startswith(f"{site.url}/dashboard/sign-in")

    page.goto("/dashboard/account")
    expect(page.get_by_text("9 recovery codes left")).to_be_visible()
    shoot(page, "account")
    page.goto(site.service.run("user", "link", "coded@example.com", "--public-url", site.url).stdout.strip())
    for code, is_good in (("00000", False), (recovery[1], True)):  # a link does not bypass the code
        page.get_by_label("New password").fill(PASSWORD * 2)
        page.get_by_label("Code").fill(code)
        page.get_by_role("button", name="Set password").click()
        expect(page.get_by_role("status" if is_good else "alert")).to_be_visible()
    page.goto("/dashboard/account")
    page.get_by_label("Code").fill(recovery[2])
    page.get_by_role("button", name="Turn off").click()
    expect(page.get_by_role("status")).to_have_text("Two-factor authentication is off.")


def test_new_password_ends_other_sessions(site: Site) -> None:
    here = site.open("moved@example.com", path="/dashboard/account")
    there = site.page()
    sign_in(there, "moved@example.com")
    there.wait_for_url("**/dashboard")
    here.get_by_label("Current password").fill(PASSWORD)
    here.get_by_label("New password").fill(PASSWORD * 2)
    here.get_by_role("button", name="Change password").click()
    expect(here.get_by_role("status")).to_contain_text("Password changed")
    there.goto("/dashboard/account")
    assert "/sign-in" in there.url
    sign_in(there, "moved@example.com", PASSWORD * 2)
    here.reload()
    here.get_by_role("button", name="Sign out everywhere else").click()
    there.goto("/dashboard/account")
    assert "/sign-in" in there.url


def test_too_many_wrong_passwords_return_retry_time(site: Site) -> None:
    site.add("guessed@example.com")
    let_in(site.service.database, "guessed@example.com")
    form = urlencode({"email": "guessed@example.com", "password": "wrong"}).encode()
    answers = [site.service.post("/dashboard/sign-in", form, key=None, headers=FORM) for _ in range(ATTEMPTS_MAX + 1)]
    assert [response.status for response in answers] == [403] * ATTEMPTS_MAX + [429]
    assert b"Try again in 15 minutes" in answers[-1].raw


def test_session_behind_proxy_shows_client_address(site: Site) -> None:
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
def test_totp_codes_match_rfc_6238(seconds: int, code: str) -> None:
    secret, now = b"12345678901234567890", seconds * 1000
    assert code_at(secret, now // TIME_STEP_MS) == code
    assert find_time_step(secret, code, now + TIME_STEP_MS) == now // TIME_STEP_MS
    assert find_time_step(secret, code, now + 2 * TIME_STEP_MS) is None


@contextmanager
def start_and_read_link(folder: Path) -> Iterator[str]:
    """Return the link that `heliograph serve` prints while no account exists."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HELIOGRAPH_")}
    process = Forked(PROGRAM, ["serve", "--listen", "127.0.0.1:0", "--data", "data"], environment, folder)
    with process.stdout:
        try:
            yield next(line.split()[-1] for line in process.stdout if line.startswith("First operator: "))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)


def test_first_start_link_creates_operator(site: Site, shoot: Shoot, tmp_path: Path) -> None:
    with start_and_read_link(tmp_path):
        pass  # this link is not used
    with start_and_read_link(tmp_path) as link:
        page = site.page()
        page.goto(link)
        shoot(page, "first")
        page.locator("form").evaluate("form => form.noValidate = true")
        page.get_by_label("Email address").fill("nobody")
        page.get_by_label("New password").fill(PASSWORD)
        page.get_by_role("button", name="Create account").click()
        expect(page.get_by_role("alert")).to_have_text("Enter a valid email address.")
        page.get_by_label("Email address").fill("Boss@Example.com")
        page.get_by_label("Your name").fill("The Boss")
        page.get_by_label("New password").fill(PASSWORD)
        page.get_by_role("button", name="Create account").click()
        page.locator("header .mine > summary").click()
        page.locator("header").get_by_role("link", name="Your account").click()
        expect(page.get_by_label("Your name")).to_have_value("The Boss")
        expect(page.get_by_role("link", name="Operator")).to_be_visible()
        assert page.goto(link).status == 404


@pytest.mark.parametrize(
    "path", ["/dashboard", "/dashboard/account", "/dashboard/teams/team_acme", "/dashboard/operator"]
)
def test_signed_out_request_redirects_to_sign_in(site: Site, path: str) -> None:
    response = site.service.get(path, key=None)
    assert (response.status, response.headers["location"]) == (303, f"/dashboard/sign-in?next={path}")


@pytest.mark.parametrize("path", ["", "/keys", "/team"])
def test_missing_team_responds_like_foreign_team(site: Site, path: str) -> None:
    page = site.open(f"outside{path.replace('/', '.')}@example.com")
    mine = {"Cookie": "; ".join(f"{item['name']}={item['value']}" for item in page.context.cookies())}
    for headers, status in (({}, 303), (mine, 404)):
        answers = [
            site.service.ask(method, f"/dashboard/teams/{team}{path}", key=None, headers=headers)
            for method in ("GET", "POST")
            for team in ("team_acme", "team_none")
        ]
        alike = [
            (
                response.status,
                response.raw.replace(b"team_none", b"team_acme"),
                {
                    name: value.replace("team_none", "team_acme")
                    for name, value in response.headers.items()
                    if name != "x-request-id"
                },
            )
            for response in answers
        ]
        assert alike[0] == alike[1]
        assert alike[2] == alike[3]
        assert alike[0][0] == status


def test_sign_in_redirects_only_within_dashboard(site: Site) -> None:
    site.open("next@example.com")
    for next_page, ends_at in (
        ("/dashboard/account", "/dashboard/account"),
        ("https://evil.test/", "/dashboard"),
        ("//evil.test/dashboard", "/dashboard"),
        ("/dashboard\r\nSet-Cookie: a=b", "/dashboard"),
    ):
        form = urlencode({"email": "next@example.com", "password": PASSWORD}).encode()
        response = site.service.post(
            f"/dashboard/sign-in?{urlencode({'next': next_page})}", form, key=None, headers=FORM
        )
        assert (response.status, response.headers["location"]) == (303, ends_at)
        assert "a=b" not in response.headers["set-cookie"]


def test_cross_site_form_is_refused(site: Site) -> None:
    page = site.open("eve@example.com")
    response = page.request.post(f"{site.url}/dashboard/account/password", form={"new": PASSWORD * 2, "csrf": "guess"})
    assert response.status == 403
    elsewhere = FORM | {"Origin": "https://evil.test"}
    assert site.service.post("/dashboard/sign-in", b"email=a", key=None, headers=elsewhere).status == 403


def test_every_page_has_security_headers(site: Site) -> None:
    policy = site.service.get("/dashboard/sign-in", key=None).headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-inline" not in policy
