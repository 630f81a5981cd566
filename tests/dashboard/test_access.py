"""Every page judged by axe-core: nothing serious may stand between a person and the page (WCAG 2.1 AA)."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from heliograph.dashboard.pages import PAGES
from tests.dashboard.conftest import Site
from tests.service import until

TEAM, OPERATOR = "/dashboard/teams/team_acme", "/dashboard/operator"
MAIL = {"from": "hi@acme.test", "to": "delivered@simulator.test", "subject": "Hi", "html": "<p>Hi</p>", "text": "Hi"}
HOOK = {"url": "http://127.0.0.1:9/" + "long/" * 30, "events": ["*"]}
SMS = {"to": "+15005550006", "template_id": "tpl_sms", "variables": {"parcel": "42"}}
# Redirects, files, and pages that need a query or another team.
NOT_PAGES = ("/", ".csv", "/export", "/sign-in", "/suppressions/remove", "/senders/recipients")
LISTS = [route.path.format(team="team_acme") for route in PAGES if route.method == "GET"
         and route.path.count("{") == route.path.count("{team}") and not route.path.endswith(NOT_PAGES)]  # fmt: skip
MAIN = [TEAM + place for place in ("", "/messages", "/inbox", "/senders", "/keys", "/webhooks", "/money")]
JUDGE = """async () => {
  const tags = ["wcag2a", "wcag2aa", "wcag21aa"];
  const said = await axe.run(document, { runOnly: tags, resultTypes: ["violations"], iframes: false });
  return said.violations.filter(({ impact }) => impact === "serious" || impact === "critical")
    .flatMap(({ id, nodes }) => nodes.map(({ target, html }) => `${id}: ${target.join(" ")} ${html.slice(0, 150)}`));
}"""


def miss(why: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"{why}: in CI nothing is skipped")
    pytest.skip(f"the pages are not judged by axe-core: {why}")


@pytest.fixture(scope="module")
def axe(pytestconfig: pytest.Config) -> Path:
    """The script of the npm package, installed by name and kept in pytest's cache."""
    assert pytestconfig.cache
    folder = pytestconfig.cache.mkdir("axe-core")
    script = folder / "node_modules/axe-core/axe.min.js"
    npm = shutil.which("npm")
    if not script.exists():
        if npm is None:
            miss("npm is not installed")
        command = [npm or "npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), "axe-core"]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=180)
        except (subprocess.SubprocessError, OSError) as error:
            miss(f"npm install axe-core failed ({error})")
    return script


@pytest.fixture(scope="module")
def made(running: Any) -> dict[str, str]:
    """Something to see on every list; answers the ids."""
    hook = running.post("/v1/webhooks", HOOK).json["id"]
    mail = running.post("/v1/emails", MAIL).json["id"]
    until(lambda: running.get(f"/v1/emails/{mail}").json["status"] == "delivered")
    return {
        "mail": mail,
        "hook": hook,
        "sms": running.post("/v1/sms", SMS).json["id"],
        "verification": running.post("/v1/verify", {"to": "+15005551042"}).json["id"],
    }


def singles(page: Any, made: dict[str, str]) -> list[str]:
    """One page of each kind that needs an id."""

    def linked(path: str) -> str:
        links = page.locator(f"main a[href^='{path}/']")
        until(lambda: page.goto(path.removesuffix("/deliveries")) and links.count())
        return str(links.first.get_attribute("href"))

    return [
        f"{TEAM}/messages/{made['sms']}",
        f"{TEAM}/verifications/{made['verification']}",
        f"{TEAM}/inbox/{made['mail']}",
        f"{TEAM}/templates/tpl_welcome",
        f"{TEAM}/templates/tpl_welcome/edit",
        f"{TEAM}/templates/tpl_sms/preview",
        f"{TEAM}/templates/tpl_sms/versions/1",
        f"{TEAM}/senders/domains/dom_acme",
        f"{TEAM}/webhooks/{made['hook']}",
        f"{TEAM}/suppressions/remove?email=gone@example.com",
        "/dashboard/teams/team_sandbox/senders/recipients?address=me@example.com",
        linked(f"{TEAM}/keys"),
        linked(f"{TEAM}/webhooks/{made['hook']}/deliveries"),
        linked(f"{OPERATOR}/people"),
    ]


def judged(page: Any, axe: Path, path: str, *looks: str) -> list[str]:
    """What axe finds, as lines of page, look, rule and element."""
    found = []
    assert page.goto(path).status == 200, path
    page.add_script_tag(path=str(axe))
    for look in looks:
        page.emulate_media(color_scheme="dark" if look == "dark" else "light")
        page.set_viewport_size({"width": 390, "height": 844} if look == "phone" else {"width": 1280, "height": 720})
        found += [f"{path} {look} {line}" for line in page.evaluate(JUDGE)]
    return found


def test_every_page(site: Site, axe: Path, made: dict[str, str]) -> None:
    role = ("--operator", "--team", "team_acme", "--role", "owner")
    page = site.open("ada@example.com", *role, bypass_csp=True)  # so that the script can be added
    main = [*MAIN, OPERATOR, f"{TEAM}/messages/{made['mail']}", f"{TEAM}/templates/tpl_sms/edit"]
    others = [path for path in LISTS + singles(page, made) if path not in main]
    found = [line for path in main for line in judged(page, axe, path, "light", "dark", "phone")]
    found += [line for path in others for line in judged(page, axe, path, "light")]
    assert not found, "\n".join(found)


def test_before_the_sign_in(site: Site, axe: Path) -> None:
    page = site.page(bypass_csp=True)
    found = [
        line
        for path in ("/dashboard/sign-in", site.add("new@example.com"))
        for line in judged(page, axe, path, "light", "dark")
    ]
    assert not found, "\n".join(found)
