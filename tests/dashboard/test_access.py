"""Every page judged by axe-core, wide and light, narrow and dark: it finds nothing, of whatever impact."""

import base64
import functools
import http.server
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heliograph.dashboard.pages import PAGES
from heliograph.dashboard.totp import STEP_MS, code_at
from tests.dashboard.conftest import Site
from tests.service import until

TEAM, OPERATOR = "/dashboard/teams/team_acme", "/dashboard/operator"
OWNER = ("--operator", "--team", "team_acme", "--role", "owner")
OPEN: dict[str, Any] = {"bypass_csp": True}  # so that the script can be added
MAIL = {"from": "hi@acme.test", "to": "delivered@simulator.test", "subject": "Hi", "html": "<p>Hi</p>", "text": "Hi"}
HOOK = {"url": "http://127.0.0.1:9/" + "long/" * 30, "events": ["*"]}
SMS = {"to": "+15005550006", "template_id": "tpl_sms", "variables": {"parcel": "42"}}
# Redirects, files, and pages that need a query or another team.
NOT_PAGES = (
    "/money",
    "/",
    ".csv",
    "/export",
    "/live",
    "/sign-in",
    "/suppressions/remove",
    "/senders/recipients",
    "/zone",
    "recipients/new",
)
LISTS = [route.path.format(team="team_acme") for route in PAGES if route.method == "GET"
         and route.path.count("{") == route.path.count("{team}") and not route.path.endswith(NOT_PAGES)]  # fmt: skip
# In full once; the second look is at what colours and widths change. Each costs a second of CPU for each page.
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
LOOKS: dict[str, tuple[Any, Any, list[str]]] = {
    "light": ("light", WIDE, []),
    "dark, on a phone": ("dark", NARROW, ["color-contrast", "target-size", "scrollable-region-focusable"]),
}
JUDGE = """async ([only, part]) => {
  const rules = only.length
    ? { runOnly: { type: "rule", values: only } } : { rules: { "target-size": { enabled: true } } };
  const options = { resultTypes: ["violations"], iframes: false, preload: false, ...rules };
  axe.configure({ rules: ["color-contrast", "target-size"].map((id) => ({ id, selector: `${part} *` })) });
  const said = await axe.run(only.length ? document.querySelector(part) : document, options);
  const { scrollWidth, clientWidth } = document.documentElement;
  const wide = scrollWidth > clientWidth ? [`the page is ${scrollWidth} px wide, of ${clientWidth}`] : [];
  return wide.concat(said.violations.flatMap(({ id, impact, nodes }) =>
    nodes.map(({ target, html }) => `${impact} ${id}: ${target.join(" ")} ${html.slice(0, 150)}`)));
}"""


def miss(why: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"{why}: in CI nothing is skipped")
    pytest.skip(f"the pages are not judged by axe-core: {why}")


class Kept(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "max-age=3600")
        super().end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def axe(script: Path) -> Iterator[str]:
    """Where browsers get the script; they keep it compiled, as one that is handed in with each page is not."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Kept, directory=script.parent)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/{script.name}"
        server.shutdown()


@pytest.fixture(scope="module")
def script(pytestconfig: pytest.Config) -> Path:
    """Of the npm package, installed by name and kept in pytest's cache."""
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
        "whatsapp": running.post("/v1/whatsapp", SMS | {"template_id": "tpl_whatsapp"}).json["id"],
        "verification": running.post("/v1/verify", {"to": "+15005551042"}).json["id"],
    }


def singles(page: Any, made: dict[str, str]) -> list[str]:
    """One page of each kind that needs an id."""

    def linked(path: str) -> str:
        links = page.locator(f"main a[href^='{path}/']:not([href$='/new'])")
        until(lambda: page.goto(path.removesuffix("/deliveries")) and links.count())
        return str(links.first.get_attribute("href"))

    return [
        *(f"{TEAM}/messages/{made[one]}" for one in ("mail", "sms", "whatsapp")),
        f"{TEAM}/verifications/{made['verification']}",
        *(f"{TEAM}/inbox/{made[one]}" for one in ("mail", "sms", "whatsapp")),
        f"{TEAM}/templates/tpl_welcome",
        f"{TEAM}/templates/tpl_welcome/edit",
        f"{TEAM}/templates/tpl_sms/edit",
        f"{TEAM}/templates/tpl_sms/preview",
        f"{TEAM}/templates/tpl_sms/versions/1",
        *(f"{TEAM}/templates/{place}" for place in ("new", "new?channel=email", "tpl_sms/test", "tpl_sms/versions")),
        f"{TEAM}/senders/domains/dom_acme",
        f"{TEAM}/webhooks/{made['hook']}",
        f"{TEAM}/webhooks/{made['hook']}/edit",
        f"{TEAM}/suppressions/remove?email=gone@example.com",
        "/dashboard/teams/team_sandbox/senders/recipients?address=me@example.com",
        linked(f"{TEAM}/keys"),
        linked(f"{TEAM}/webhooks/{made['hook']}/deliveries"),
        linked(f"{OPERATOR}/people"),
        f"{OPERATOR}/teams/team_acme",
    ]


def judge(page: Any, axe: str, part: str = "html") -> list[str]:
    """What axe finds on the page as it is, as lines of page, look, rule and element; colours and sizes of a part."""
    page.add_script_tag(url=axe)
    found = []
    for look, (scheme, size, only) in LOOKS.items():
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # not while it fades in
        page.set_viewport_size(size)
        found += [f"{page.url} {look} {line}" for line in page.evaluate(JUDGE, [only, part])]
    return found


def judged(page: Any, axe: str, path: str, status: int = 200, part: str = "html") -> list[str]:
    assert page.goto(path, wait_until="domcontentloaded").status == status, path  # its sheet is there by then
    return judge(page, axe, part)


def test_every_page(site: Site, axe: str, made: dict[str, str]) -> None:
    page = site.open("ada@example.com", *OWNER, **OPEN)
    found = []
    for path in LISTS + singles(page, made):
        frame = path in (TEAM, OPERATOR)  # the same on all others
        found += judged(page, axe, path, part="html" if frame else "main")
    assert not found, "\n".join(found)


def test_a_bad_page_is_found(site: Site, axe: str) -> None:
    page = site.page(**OPEN)
    page.goto("/dashboard/sign-in")
    page.add_style_tag(content="@media (max-width: 400px) { main { width: 500px } h1 { color: #333 } }")
    page.evaluate("document.querySelector('h1').after(document.createElement('button'))")
    found = "\n".join(judge(page, axe, "main"))
    for what in ("light critical button-name", "phone the page is 5", "phone serious color-contrast"):
        assert what in found, found


def test_what_only_a_form_leads_to(site: Site, axe: str, tmp_path: Path) -> None:
    page = site.open("eve@example.com", *OWNER, **OPEN)
    found = []

    def fill(path: str, fields: dict[str, str], button: str, answer: str = ".error") -> None:
        page.goto(path)
        for label, value in fields.items():
            page.get_by_label(label, exact=True).fill(value)
        page.get_by_role("button", name=button, exact=True).click()
        page.locator(answer).first.wait_for()
        found.extend(judge(page, axe))

    fill(f"{TEAM}/team/new", {"Email address": "guest@example.com"}, "Invite", "text=A link for guest@example.com")
    fill(f"{TEAM}/team/new", {"Email address": "guest@localhost"}, "Invite")
    fill(f"{TEAM}/keys/new", {"Name": "A key"}, "Create key", ".once")
    fill(f"{TEAM}/webhooks/new", {"Endpoint URL": "http://127.0.0.1:9/"}, "Create webhook", ".once")
    fill(f"{TEAM}/webhooks/new", {"Endpoint URL": "http://10.0.0.1:3000/hook"}, "Create webhook", ".box pre")
    fill(f"{TEAM}/senders/domains/new", {"Domain": "no domain"}, "Continue")
    fill(f"{OPERATOR}/teams/new", {"Name": "Team", "Id": "zebra"}, "Create team")
    page.goto(f"{TEAM}/suppressions/import")
    file = tmp_path / "list.csv"
    file.write_text("a@example.com\nnot an address\n")
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Import").click()
    page.wait_for_url("**/imports/*")
    until(lambda: page.reload() and page.get_by_role("heading", name="Import done").is_visible())
    found += judge(page, axe)

    page.goto("/dashboard/account/totp")
    page.get_by_text("Or type the secret").click()
    secret = page.locator("details code").inner_text().replace(" ", "")
    now = time.time_ns() // 1_000_000
    page.get_by_label("Code").fill(code_at(base64.b32decode(secret), now // STEP_MS))
    page.get_by_role("button", name="Turn on").click()
    page.get_by_role("heading", name="Save your recovery codes").wait_for()
    found += judge(page, axe)
    found += judged(page, axe, "/dashboard/account")
    assert not found, "\n".join(found)


def test_those_who_are_not_let_in(site: Site, axe: str) -> None:
    guest = site.page(**OPEN)
    found = judged(guest, axe, "/dashboard/sign-in")
    found += judged(guest, axe, site.add("new@example.com"))
    found += judged(guest, axe, "/dashboard/link/nothing", 404)
    for path in ("", "/api/post_emails", "/errors", "/errors/invalid_email", "/guides/webhooks", "?q=bounce"):
        found += judged(guest, axe, f"/docs{path}")
    found += judged(guest, axe, "/docs/api/nothing", 404)
    viewer = site.open("vi@example.com", "--team", "team_acme", "--role", "viewer", **OPEN)
    found += judged(viewer, axe, TEAM)
    found += judged(viewer, axe, f"{TEAM}/keys", 403)
    found += judged(viewer, axe, f"{TEAM}/messages/eml_nothing", 404)
    found += judged(viewer, axe, "/dashboard/teams/team_poor", 404)
    assert "past its quota" not in viewer.content(), "a team's name is for its people"
    assert not found, "\n".join(found)
