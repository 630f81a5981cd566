"""Passkeys in a browser with an authenticator of its own (Chromium's virtual one)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.dashboard.conftest import Shoot, Site, Tabs, sync_api
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


class NamedSite(Site):
    """By a name: browsers have no passkeys for an address."""

    @property
    def url(self) -> str:
        return f"http://localhost:{self.service.ports[-1]}"

    def cookie(self, email: str) -> Any:
        return super().cookie(email) | {"domain": "localhost"}


@pytest.fixture(scope="module")
def site_settings(port: int) -> dict[str, Any]:
    return {"public_url": f"http://localhost:{port}"}


@pytest.fixture
def named(running: Service, tabs: Tabs) -> Iterator[NamedSite]:
    yield NamedSite(running, tabs)
    tabs.give_back()


@contextmanager
def device(page: Any) -> Iterator[tuple[Any, str]]:
    """An authenticator of this page's."""
    session = page.context.new_cdp_session(page)
    session.send("WebAuthn.enable")
    own = session.send("WebAuthn.addVirtualAuthenticator", {"options": DEVICE})["authenticatorId"]
    try:
        yield session, own
    finally:
        session.send("WebAuthn.removeVirtualAuthenticator", {"authenticatorId": own})
        session.detach()


def signed_in(site: NamedSite, email: str, **options: Any) -> Any:
    site.service.run("user", "add", email, "--team", "team_acme", "--role", "viewer")
    page = site.page(**options)
    page.context.add_cookies([site.cookie(email)])
    page.goto("/dashboard/account")
    return page


def add(page: Any, name: str) -> None:
    page.get_by_label("Name of the passkey").fill(name)
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_role("button", name="Add passkey").click()


def test_added_signed_in_with_and_removed_on_a_phone(named: NamedSite, shoot: Shoot) -> None:
    page = signed_in(named, "ada@example.com", viewport=PHONE)
    with device(page) as (session, own):
        add(page, "My phone")
        expect(page.get_by_role("status")).to_have_text("The passkey My phone is added.")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        shoot(page, "account-passkeys")
        (kept,) = session.send("WebAuthn.getCredentials", {"authenticatorId": own})["credentials"]
        assert (kept["rpId"], kept["isResidentCredential"]) == ("localhost", True)

        add(page, "Again")  # the device says that it has one
        expect(page.locator(".problem").first).to_have_text("This device has a passkey for this account already.")

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
        expect(page.get_by_role("status")).to_have_text("The passkey My phone is removed.")
        page.context.clear_cookies()
        page.goto("/dashboard/sign-in")
        page.get_by_role("button", name="Sign in with a passkey").click()
        expect(page.get_by_role("alert")).to_contain_text("This passkey did not work here.")


def test_a_device_that_does_not_verify_its_owner(named: NamedSite) -> None:
    page = signed_in(named, "bea@example.com")
    with device(page) as (session, own):
        add(page, "Laptop")
        expect(page.get_by_role("status")).to_be_visible()
        session.send("WebAuthn.setUserVerified", {"authenticatorId": own, "isUserVerified": False})
        page.context.clear_cookies()
        page.goto("/dashboard/sign-in")
        page.get_by_role("button", name="Sign in with a passkey").click()
        expect(page.locator(".problem")).to_have_text("No passkey was used. Try again.")


def test_a_wrong_password_is_said_at_its_field(named: NamedSite) -> None:
    page = signed_in(named, "cleo@example.com")
    with device(page):
        page.get_by_label("Name of the passkey").fill("Laptop")
        page.get_by_label("Your password").fill("wrong password")
        page.get_by_role("button", name="Add passkey").click()
        expect(page.get_by_role("alert").filter(has_text="This is not your password.")).to_be_visible()


def test_without_a_script_the_pages_say_so(named: NamedSite) -> None:
    page = signed_in(named, "dora@example.com", java_script_enabled=False)
    expect(page.get_by_text("Passkeys need JavaScript.")).to_be_visible()
    expect(page.get_by_role("button", name="Add passkey")).not_to_be_visible()
    page.context.clear_cookies()
    page.goto("/dashboard/sign-in")
    expect(page.get_by_text("Passkeys need JavaScript.")).to_be_visible()
    expect(page.get_by_role("button", name="Sign in with a passkey")).not_to_be_visible()
    expect(page.get_by_label("Password")).to_be_visible()
