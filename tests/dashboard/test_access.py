"""axe-core finds no accessibility violation, at desktop width in light mode and at phone width in dark mode.

`make test` checks one page of each kind and the outline of all; `make proof PROOFS=access` checks all pages."""

import base64
import functools
import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heliograph.dashboard.pages import PAGES
from heliograph.dashboard.totp import TIME_STEP_MS, code_at
from tests.dashboard.conftest import Site
from tests.dashboard.outline import find_faults
from tests.npm import install
from tests.people import PASSWORD
from tests.proof.size import FULL
from tests.service import until

TEAM, OPERATOR = "/dashboard/teams/team_acme", "/dashboard/operator"
OTHERS = "/dashboard/teams/team_poor"
DOCS = ("", "/errors", "/errors/invalid_email", "/guides/webhooks", "?q=bounce", "/api/nothing", "/api/get_emails")
TURNED = [f"/docs{path}" for path in DOCS]
PREVIEW = f"{TEAM}/templates/tpl_sms/preview"  # has no frame
OWNER = ("--operator", "--team", "team_acme", "--role", "owner")
OPEN: dict[str, Any] = {"bypass_csp": True}  # so that the axe script can be added
MAIL = {"from": "hi@acme.test", "to": "delivered@simulator.test", "subject": "Hi", "html": "<p>Hi</p>", "text": "Hi"}
HOOK = {"url": "http://127.0.0.1:9/" + "long/" * 30, "events": ["*"]}
SMS = {"to": "+15005550006", "template_id": "tpl_sms", "variables": {"parcel": "42"}}
# redirects, files, and pages that need a query or another team
NOT_PAGES = (
    "/money",
    "/",
    ".csv",
    "/export",
    "/live",
    "/start/own",
    "/sign-in",
    *("/sign-in/provider", "/sign-in/callback", "/sign-out/provider", "/account/provider"),
    *("/sign-in/passkey", "/passkeys/new"),
    "/suppressions/remove",
    "/senders/recipients",
    "/zone",
    "recipients/new",
)
LISTS = [route.path.format(team="team_acme") for route in PAGES if route.method == "GET"
         and route.path.count("{") == route.path.count("{team}") and not route.path.endswith(NOT_PAGES)]  # fmt: skip
# One page of each kind: form, filtered list, charts, tables, timeline, mail, editor, files, choices.
SHAPES = ("/account", "/keys/new", "/messages", "/messages/{mail}", "/inbox/{mail}", "/templates/tpl_welcome/edit",
          "/start", "/webhooks/{hook}", "/suppressions/import", "/domains/dom_acme", "/queues",
          "/carriers/new")  # fmt: skip
# Check everything once, and in the second run only what colours and widths change: each run takes a second per page.
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
LOOKS: dict[str, tuple[Any, Any, list[str]]] = {
    "light": ("light", WIDE, []),
    "dark, on a phone": ("dark", NARROW, ["color-contrast", "target-size", "scrollable-region-focusable"]),
}
# contrast takes most of the time: of texts with equal background, colour and size, one is checked
JUDGE = """async ([only, part, look]) => {
  const grounds = new Map(), seen = (window.seen ??= {})[look] ??= new Set();
  const ground = (one) => {
    if (one && !grounds.has(one)) {
      const { backgroundColor, backgroundImage, opacity } = getComputedStyle(one);
      grounds.set(one, `${ground(one.parentElement)} ${backgroundColor} ${backgroundImage} ${opacity}`);
    }
    return one ? grounds.get(one) : "";
  };
  const isText = (one) => one.matches("input, select, textarea") ||
    [...one.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  for (const one of document.querySelectorAll(`${part} *`)) {
    if (!isText(one) || one.closest(":disabled") || !one.checkVisibility()) continue;
    const { color, fontSize, fontWeight, textShadow } = getComputedStyle(one);
    const kind = [color, fontSize, fontWeight, textShadow, ground(one)].join();
    one.toggleAttribute("data-first", !seen.has(kind));
    seen.add(kind);
  }
  const rules = only.length
    ? { runOnly: { type: "rule", values: only } } : { rules: { "target-size": { enabled: true } } };
  const options = { resultTypes: ["violations"], iframes: false, preload: false, ...rules };
  const selectors = { "color-contrast": "[data-first]", "target-size": `${part} *` };
  axe.configure({ rules: Object.entries(selectors).map(([id, selector]) => ({ id, selector })) });
  const said = await axe.run(only.length ? document.querySelector(part) : document, options);
  const { scrollWidth, clientWidth } = document.documentElement;
  const wide = scrollWidth > clientWidth ? [`the page is ${scrollWidth} px wide, of ${clientWidth}`] : [];
  return wide.concat(said.violations.flatMap(({ id, impact, nodes }) =>
    nodes.map(({ target, html }) => `${impact} ${id}: ${target.join(" ")} ${html.slice(0, 150)}`)));
}"""
# The frame around <main> is the same on all pages: it is checked once, then removed.
BARE = "document.querySelectorAll('.side > *, .top > *, [data-live]').forEach((one) => one.remove())"
# Replace only the content, so that axe stays loaded and compiled.
TURN = """async (path) => {
  const answer = await fetch(path), next = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const one of next.querySelectorAll("[data-live]")) delete one.dataset.live;
  document.title = next.title;
  document.querySelector("main").replaceWith(next.querySelector("main"));
  for (const { src } of next.scripts) new Function(await (await fetch(src)).text())();
  return answer.status;
}"""


class CachedFiles(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "max-age=3600")
        super().end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def axe(script: Path) -> Iterator[str]:
    """URL of the axe script; a script loaded by URL stays compiled in the browser."""
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(CachedFiles, directory=script.parent)
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/{script.name}"
        server.shutdown()


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = install(tmp_path_factory.mktemp("axe"), "the pages are not judged by axe-core")
    return folder / "node_modules/axe-core/axe.min.js"


@pytest.fixture(scope="module")
def made(running: Any) -> dict[str, str]:
    """Create an object for every list; returns the ids."""
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


def detail_pages(page: Any, made: dict[str, str]) -> list[str]:
    """Return one detail page of each kind."""

    def linked(path: str) -> str:
        links = page.locator(f"main a[href^='{path}/']:not([href$='/new'])")
        until(lambda: page.goto(path.removesuffix("/deliveries")) and links.count())
        return str(links.first.get_attribute("href"))

    return [
        *(f"{TEAM}/messages/{made[item]}" for item in ("mail", "sms", "whatsapp")),
        f"{TEAM}/verifications/{made['verification']}",
        *(f"{TEAM}/inbox/{made[item]}" for item in ("mail", "sms", "whatsapp")),
        f"{TEAM}/templates/tpl_welcome",
        f"{TEAM}/templates/tpl_welcome/edit",
        f"{TEAM}/templates/tpl_sms/edit",
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
        *(f"{OPERATOR}/teams/team_acme{tab}" for tab in ("", "?tab=credit", "?tab=plan")),
        f"{OPERATOR}/approvals?tab=decided",
    ]


def run_axe(page: Any, part: str = "main") -> list[str]:
    """Return the violations on the current page, one line each; with `part`, only colours and sizes of this element."""
    violations = []
    for color_scheme, (scheme, size, only) in LOOKS.items():
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # after its fade-in
        page.set_viewport_size(size)
        violations += [
            f"{page.title()} {color_scheme} {line}" for line in page.evaluate(JUDGE, [only, part, color_scheme])
        ]
    return violations


def open_and_run_axe(page: Any, axe: str, path: str, status: int = 200) -> list[str]:
    assert page.goto(path, wait_until="domcontentloaded").status == status, path  # the style sheet is loaded by then
    page.add_script_tag(url=axe)
    return run_axe(page, "html")


def open_and_check_rotation(page: Any, path: str, status: int = 200) -> list[str]:
    assert page.evaluate(TURN, path) == status, path
    return run_axe(page)


def test_every_page_has_no_accessibility_violations(site: Site, axe: str, made: dict[str, str]) -> None:
    page = site.open("ada@example.com", *OWNER, **OPEN)
    paths = LISTS + detail_pages(page, made)
    shapes = tuple(shape.format(**made) for shape in SHAPES)
    violations = [line for path in (PREVIEW, OPERATOR, TEAM) for line in open_and_run_axe(page, axe, path)]
    page.evaluate(BARE)
    for path in paths:
        if FULL or path.endswith(shapes):
            violations += open_and_check_rotation(page, path)
    assert not violations, "\n".join(violations)
    check_outlines(page, paths)


def check_outlines(page: Any, paths: list[str]) -> None:
    """Check the outline of each page without rendering it."""
    pages = {path: page.request.get(path).text() for path in paths}
    assert {path: wrong for path, html in pages.items() if (wrong := find_faults(html))} == {}


def test_checker_finds_violations_on_bad_page(site: Site, axe: str) -> None:
    page = site.page(**OPEN)
    page.goto("/dashboard/sign-in")
    page.add_style_tag(content="@media (max-width: 400px) { main { width: 500px } h1 { color: #333 } }")
    page.evaluate("document.querySelector('h1').after(document.createElement('button'))")
    page.add_script_tag(url=axe)
    violations = "\n".join(run_axe(page))
    for what in ("light critical button-name", "phone the page is 5", "phone serious color-contrast"):
        assert what in violations, violations


def test_open_filter_has_no_accessibility_violations(site: Site, axe: str, running: Any) -> None:
    for path in ("received", "emails", "sms", "whatsapp", "verify", "suppressions", "domains", "templates", "keys"):
        running.get(f"/v1/{path}")
    page = site.open("filters@example.com", *OWNER, **OPEN)
    box = page.get_by_role("combobox", name="Endpoint")
    until(lambda: page.goto(f"{TEAM}/requests") and box.is_visible())
    page.add_script_tag(url=axe)
    page.evaluate("document.querySelector('.folded').open = true")  # also as wide as a phone
    box.click()
    violations = run_axe(page)
    assert page.get_by_role("listbox").is_visible() and not violations, "\n".join(violations)


def test_form_result_pages_have_no_accessibility_violations(site: Site, axe: str, tmp_path: Path) -> None:
    page = site.open("eve@example.com", *OWNER, **OPEN)
    violations = []

    def look() -> None:
        page.add_script_tag(url=axe)
        page.evaluate(BARE)
        violations.extend(run_axe(page))

    def fill(path: str, fields: dict[str, str], button: str, answer: str = ".error", shape: bool = False) -> None:
        if not (FULL or shape):
            return
        page.goto(path)
        for label, value in fields.items():
            page.get_by_label(label, exact=True).fill(value)
        page.get_by_role("button", name=button, exact=True).click()
        page.locator(answer).first.wait_for()
        look()

    fill(f"{TEAM}/team/new", {"Email address": "guest@example.com"}, "Invite", "text=Link for guest@example.com")
    fill(f"{TEAM}/team/new", {"Email address": "guest@localhost"}, "Invite", shape=True)
    fill(f"{TEAM}/keys/new", {"Name": "A key"}, "Create key", ".once", shape=True)
    fill(f"{TEAM}/webhooks/new", {"Endpoint URL": "http://127.0.0.1:9/"}, "Create webhook", ".once")
    fill(f"{TEAM}/webhooks/new", {"Endpoint URL": "http://10.0.0.1:3000/hook"}, "Create webhook", ".box pre")
    fill(f"{TEAM}/senders/domains/new", {"Domain": "no domain"}, "Continue")
    fill(f"{OPERATOR}/teams/new", {"Name": "Team", "ID": "zebra"}, "Create team")
    page.goto(f"{TEAM}/suppressions/import")
    file = tmp_path / "list.csv"
    file.write_text("a@example.com\nnot an address\n")
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Import").click()
    page.wait_for_url("**/imports/*")
    until(lambda: page.reload() and page.get_by_role("heading", name="Import finished").is_visible())
    if FULL:
        look()

    page.goto("/dashboard/account/totp")
    secret = page.locator(".form .copyable code").inner_text().replace(" ", "")
    now = time.time_ns() // 1_000_000
    page.get_by_label("Code").fill(code_at(base64.b32decode(secret), now // TIME_STEP_MS))
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_role("button", name="Turn on").click()
    page.get_by_role("heading", name="Save your recovery codes").wait_for()
    look()
    if FULL:
        violations += open_and_run_axe(page, axe, "/dashboard/account")
    assert not violations, "\n".join(violations)


def test_signed_out_and_error_pages_have_no_accessibility_violations(site: Site, axe: str) -> None:
    guest = site.page(**OPEN)
    link = site.add("new@example.com")
    violations = open_and_run_axe(guest, axe, "/dashboard/sign-in") + open_and_run_axe(guest, axe, link)
    # This page is marked as current in the navigation
    violations += open_and_run_axe(guest, axe, "/docs/api/post_emails")
    viewer = site.open("vi@example.com", "--team", "team_acme", "--role", "viewer", **OPEN)
    violations += open_and_run_axe(viewer, axe, f"{TEAM}/keys", 403)
    check_outlines(guest, ["/dashboard/sign-in", link, "/dashboard/link/nothing", "/docs", *TURNED])
    check_outlines(viewer, [TEAM, f"{TEAM}/keys", f"{TEAM}/messages/eml_nothing", OTHERS])
    assert "past its quota" not in viewer.request.get(OTHERS).text(), "a team's name is for its people"
    guest.goto("/docs")
    guest.add_script_tag(url=axe)
    for path in TURNED:
        violations += open_and_check_rotation(guest, path, 404 if path.endswith("nothing") else 200)
    if FULL:
        violations += open_and_run_axe(guest, axe, "/dashboard/link/nothing", 404)
        violations += open_and_run_axe(viewer, axe, TEAM) + open_and_check_rotation(
            viewer, f"{TEAM}/messages/eml_nothing", 404
        )
        violations += open_and_run_axe(viewer, axe, OTHERS, 404)
    assert not violations, "\n".join(violations)
