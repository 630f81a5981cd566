"""Passkeys in a browser with Chromium's virtual authenticator."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.dashboard.conftest import Shoot, Site, TabPool, sync_api
from tests.people import PASSWORD
from tests.service import Service

expect = sync_api.expect
PHONE = {"width": 390, "height": 844}
DEVICE = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


class SiteWithHostName(Site):
    """Site with a host name, because browsers have no passkeys for IP addresses."""

    @property
    def url(self) -> str:
        return f"http://localhost:{self.service.ports[-1]}"

    def cookie(self, email: str) -> Any:
        return super().cookie(email) | {"domain": "localhost"}


@pytest.fixture(scope="module")
def site_settings(port: int) -> dict[str, Any]:
    return {"public_url": f"http://localhost:{port}"}


@pytest.fixture
def named(running: Service, tabs: TabPool) -> Iterator[SiteWithHostName]:
    yield SiteWithHostName(running, tabs)
    tabs.release()


@contextmanager
def virtual_authenticator(page: Any) -> Iterator[tuple[Any, str]]:
    """Add a virtual authenticator to the page."""
    session = page.context.new_cdp_session(page)
    session.send("WebAuthn.enable")
    authenticator_id = session.send("WebAuthn.addVirtualAuthenticator", {"options": DEVICE})["authenticatorId"]
    try:
        yield session, authenticator_id
    finally:
        session.send("WebAuthn.removeVirtualAuthenticator", {"authenticatorId": authenticator_id})
        session.detach()


def open_signed_in(site: SiteWithHostName, email: str, **options: Any) -> Any:
    site.service.run("user", "add", email, "--team", "team_acme", "--role", "viewer")
    page = site.page(**options)
    page.context.add_cookies([site.cookie(email)])
    page.goto("/dashboard/account")
    return page


def add_passkey(page: Any, name: str) -> None:
    page.get_by_label("Passkey name").fill(name)
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_role("button", name="Add passkey").click()


def test_passkey_on_phone_is_added_used_and_removed(named: SiteWithHostName, shoot: Shoot) -> None:
    page = open_signed_in(named, "ada@example.com", viewport=PHONE)
    with virtual_authenticator(page) as (session, authenticator_id):
        add_passkey(page, "My phone")
        expect(page.get_by_role("status")).to_have_text("Passkey My phone added.")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        shoot(page, "account-passkeys")
        (credential,) = session.send("WebAuthn.getCredentials", {"authenticatorId": authenticator_id})["credentials"]
        assert (credential["rpId"], credential["isResidentCredential"]) == ("localhost", True)

        add_passkey(page, "Again")  # the authenticator reports an existing passkey
        expect(page.locator(".problem").first).to_have_text("This device already has a passkey for this account.")

        page.context.clear_cookies()
        page.goto("/dashboard/teams/team_acme")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        shoot(page, "sign-in-passkey")
        page.get_by_role("button", name="Sign in with a passkey").click()
        page.wait_for_url(f"{named.url}/dashboard/teams/team_acme")

        page.goto("/dashboard/account")
        row = page.get_by_role("row").filter(has_text="My phone")
        expect(row).to_be_visible()
        expect(row).not_to_contain_text("Never")
        page.get_by_role("button", name="Remove passkey").click()
        expect(page.get_by_role("status")).to_have_text("Passkey My phone removed.")
        page.context.clear_cookies()
        page.goto("/dashboard/sign-in")
        page.get_by_role("button", name="Sign in with a passkey").click()
        expect(page.get_by_role("alert")).to_contain_text("This passkey didn't work.")


def test_passkey_without_user_verification_is_rejected(named: SiteWithHostName) -> None:
    page = open_signed_in(named, "bea@example.com")
    with virtual_authenticator(page) as (session, authenticator_id):
        add_passkey(page, "Laptop")
        expect(page.get_by_role("status")).to_be_visible()
        session.send("WebAuthn.setUserVerified", {"authenticatorId": authenticator_id, "isUserVerified": False})
        page.context.clear_cookies()
        page.goto("/dashboard/sign-in")
        page.get_by_role("button", name="Sign in with a passkey").click()
        expect(page.locator(".problem")).to_have_text("No passkey was selected. Try again.")


def test_adding_passkey_with_wrong_password_shows_field_error(named: SiteWithHostName) -> None:
    page = open_signed_in(named, "cleo@example.com")
    with virtual_authenticator(page):
        page.get_by_label("Passkey name").fill("Laptop")
        page.get_by_label("Your password").fill("wrong password")
        page.get_by_role("button", name="Add passkey").click()
        expect(page.get_by_role("alert").filter(has_text="Wrong password.")).to_be_visible()


def test_passkey_pages_without_javascript_say_so(named: SiteWithHostName) -> None:
    page = open_signed_in(named, "dora@example.com", java_script_enabled=False)
    expect(page.get_by_text("Passkeys need JavaScript.")).to_be_visible()
    expect(page.get_by_role("button", name="Add passkey")).not_to_be_visible()
    page.context.clear_cookies()
    page.goto("/dashboard/sign-in")
    expect(page.get_by_text("Passkeys need JavaScript.")).to_be_visible()
    expect(page.get_by_role("button", name="Sign in with a passkey")).not_to_be_visible()
    expect(page.get_by_label("Password")).to_be_visible()
