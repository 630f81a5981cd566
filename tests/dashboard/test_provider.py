"""Sign-in in a browser with a third-party identity provider (the npm package oidc-provider)."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.conftest import Shoot, Site, sync_api
from tests.npm import install
from tests.service import Service, free_port

expect = sync_api.expect
PROGRAM = Path(__file__).with_name("provider.mjs")
ROLES = "ops=operator,acme-owners=team_acme:owner,acme-viewers=team_acme:viewer"
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[str]:
    folder = install(tmp_path_factory.mktemp("provider"), "signing in is not judged by oidc-provider")
    shutil.copy(PROGRAM, folder)
    provider_port = free_port()
    arguments = ["node", PROGRAM.name, str(provider_port), f"http://127.0.0.1:{port}"]
    process = subprocess.Popen(arguments, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        assert any("ready" in line for line in process.stdout)
        yield f"http://127.0.0.1:{provider_port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, chromium: Any, port: int, issuer: str) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp("site")
    secret = folder / "secret"
    secret.write_text("kept in a file\n")
    settings: Any = {
        "oidc_issuer": issuer,
        "oidc_client_id": "heliograph",
        "oidc_client_secret_file": str(secret),
        "oidc_name": "Example ID",
        "oidc_scopes": "openid email profile groups",
        "oidc_roles": ROLES,
    }
    with Service(f"sqlite:///{folder / 'heliograph.db'}", folder / "data", **settings) as service:
        service.apply()
        service.start(port=port)
        yield service


def sign_in(site: Site, login: str, path: str = "/dashboard", **options: Any) -> Any:
    """Sign in at the provider with a name and any password, and consent."""
    page = site.page(**options)
    page.goto(path)
    page.get_by_role("link", name="Sign in with Example ID").click()
    page.get_by_placeholder("Enter any login").fill(login)
    page.get_by_placeholder("and password").fill("any")
    page.get_by_role("button", name="Sign-in").click()
    page.get_by_role("button", name="Continue").click()
    return page


def test_new_person_signs_in_with_role_from_provider(site: Site, shoot: Shoot) -> None:
    page = site.page(viewport=PHONE)
    page.goto("/dashboard/sign-in")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    shoot(page, "sign-in-provider")
    page = sign_in(site, "ada", "/dashboard/teams/team_acme/team")
    page.wait_for_url(re.compile("/dashboard/teams/team_acme/team$"))
    expect(page.get_by_role("link", name="Invite")).to_be_visible()
    page.goto("/dashboard/account")
    expect(page.get_by_label("Your name")).to_have_value("Ada at ID")
    expect(page.get_by_text("Connected just now")).to_be_visible()
    shoot(page, "account-provider")
    page.goto("/dashboard/teams/team_acme/audit")
    expect(page.get_by_text("none → owner, by Example ID")).to_be_visible()


def test_provider_sign_in_works_without_javascript(site: Site) -> None:
    page = sign_in(site, "vi", java_script_enabled=False)
    page.wait_for_url(re.compile("/dashboard"))
    page.goto("/dashboard/teams/team_acme")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert page.goto("/dashboard/teams/team_acme/team/new").status == 403


@pytest.mark.in_full
def test_operator_signs_in_and_out_with_provider(site: Site, shoot: Shoot) -> None:
    page = sign_in(site, "root", "/dashboard/operator/people")
    expect(page.get_by_role("heading", name="People")).to_be_visible()
    page.goto("/dashboard/operator/audit")
    expect(page.get_by_text("with Example ID").first).to_be_visible()
    page.locator("header .mine > summary").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("status")).to_have_text("You have signed out.")
    shoot(page, "signed-out-provider")
    page.get_by_role("link", name="Also sign out of Example ID").click()
    page.get_by_role("button", name="Yes").click()
    page.wait_for_url("**/dashboard/sign-in*")
    page.get_by_role("link", name="Sign in with Example ID").click()
    expect(page.get_by_placeholder("Enter any login")).to_be_visible()  # nobody is signed in at the provider


@pytest.mark.parametrize(
    ("login", "why"),
    [
        ("eve", "Example ID doesn't confirm that your email address is verified"),
        ("stranger", "You have no role here yet."),
    ],
)
def test_provider_sign_in_without_access_is_rejected(site: Site, shoot: Shoot, login: str, why: str) -> None:
    page = sign_in(site, login)
    expect(page.get_by_role("alert")).to_contain_text(why)
    shoot(page, f"refused-{login}")
    page.goto("/dashboard/account")
    assert "/sign-in" in page.url


def test_denial_at_provider_shows_message(site: Site) -> None:
    page = site.page()
    page.goto("/dashboard/sign-in")
    page.get_by_role("link", name="Sign in with Example ID").click()
    page.get_by_role("link", name="Cancel").click()
    expect(page.get_by_role("alert")).to_have_text("Example ID denied the sign-in.")
