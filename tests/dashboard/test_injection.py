"""A hundred script-injection payloads in all fields that teams can write: none runs on any page."""

import itertools
import json
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

from heliograph.dashboard.pages import PAGES
from tests.dashboard.conftest import Site
from tests.dashboard.outline import Element, parse_elements
from tests.proof.size import FULL
from tests.service import until

HIT = "window.hit=1"
OPENINGS = ("", '"', "'", '">', "'>", "</title>", "</textarea>", "-->", "]]>", "</script>")
BODIES = (
    f"<script>{HIT}</script>",
    f"<img src=x onerror={HIT}>",
    f"<svg onload={HIT}>",
    f"<iframe srcdoc='<script>parent.{HIT}</script>'></iframe>",
    f"<a href='javascript:{HIT}'>go</a>",
    f"<details open ontoggle={HIT}>",
    f" onfocus={HIT} autofocus ",
    f"<style onload={HIT}></style>",
    f"{{{{ {HIT} }}}}",
    f"<math><mtext></form><form><mglyph><style></math><img src onerror={HIT}>",
)
PAYLOADS = [opening + body for opening, body in itertools.product(OPENINGS, BODIES)]
TEAM = "team_acme"
SMALL = {"width": 640, "height": 300}  # scripts run without painting, which saves time
LISTS = [
    route.path.format(team=TEAM)
    for route in PAGES
    if route.method == "GET"
    and route.required_role != "anyone"
    and route.path.count("{") == route.path.count("{team}")
    and not route.path.endswith((".csv", "/export", "/live", "/zone", "/start/own"))
]


Visited = tuple[Any, list[str], list[str]]


def toml_string(text: str) -> str:
    return json.dumps(text)


def payload_setup() -> str:
    """Return a setup file with a payload in every name; single fields hold several payloads."""
    several = "".join(PAYLOADS[::11])[:200]
    lines = [
        f"[platform]\nbrand = {toml_string(several)}\n[[teams]]\nid = {toml_string(TEAM)}\nname = "
        f"{toml_string(several)}"
    ]
    for number, payload in enumerate(PAYLOADS):
        body = toml_string(payload.replace("{{", "{").replace("}}", "}"))
        lines += [
            f"[[teams.templates]]\nid = 'tpl_x{number}'\nchannel = 'email'\nname = {toml_string(payload)}",
            f"subject = {body}\nhtml = {body}\ntext = {body}",
            f"[[teams.keys]]\nname = {toml_string(payload)}",
        ]
    lines.append(f"[[teams.domains]]\nid = 'dom_acme'\nname = 'acme.test'\nbrand = {toml_string(several)}")
    for number, payload in enumerate(PAYLOADS):
        lines.append(f"[[teams.domains.display_names]]\nid = 'dn_x{number}'\nname = {toml_string(payload)}")
    return "\n".join(lines)


def write_payloads(site: Site, folder: Path) -> dict[str, str]:
    """Write every payload to every writable field; returns the ids of the objects."""
    file = folder / "payloads.toml"
    file.write_text(payload_setup())
    site.service.apply(file)
    sent = ""
    for payload in PAYLOADS:
        mail = {"to": "failed@simulator.test", "from": "hello@acme.test", "subject": payload, "html": payload}
        response = site.service.post("/v1/emails", mail)
        assert response.status == 202, response.raw
        sent = response.json["id"]
        sms = {"to": "+15005550006", "template_id": "tpl_sms", "variables": {"parcel": payload}}
        assert site.service.post("/v1/sms", sms).status == 202
    hook = ""
    for payload in PAYLOADS[::4]:
        webhook = {"url": "http://127.0.0.1:9/" + "x", "events": ["*"], "description": payload}
        hook = site.service.post("/v1/webhooks", webhook).json["id"]
    until(lambda: site.service.get(f"/v1/emails/{sent}").json["status"] == "failed")
    return {"message": sent, "webhook": hook}


@pytest.fixture
def visited(site: Site, tmp_path: Path) -> Visited:
    """Return a browser page, all page paths, and one path of each kind."""
    ids = write_payloads(site, tmp_path)
    page = site.open("op@example.com", "--operator", "--team", TEAM, "--role", "owner", viewport=SMALL)
    base = f"/dashboard/teams/{TEAM}"
    single = [
        f"{base}/messages/{ids['message']}",
        f"{base}/inbox/{ids['message']}",
        f"{base}/webhooks/{ids['webhook']}",
        f"{base}/senders/domains/dom_acme",
        *(f"{base}/templates/tpl_x{number}" for number in range(0, len(PAYLOADS), 9)),
        *(f"{base}/templates/tpl_x{number}/edit" for number in range(0, len(PAYLOADS), 19)),
    ]
    some = [
        f"{base}{path}" for path in ("/messages", "/templates", "/keys", "/templates/tpl_x0", "/templates/tpl_x0/edit")
    ]
    return page, [*LISTS, *single], [*some, *single[:4]]


def active_payloads(html: str) -> list[str]:
    """Return the elements that an unescaped payload created; the Content-Security-Policy would still block them."""
    return [str(item) for item in parse_elements(html) if _is_active(item)]


def _is_active(one: Element) -> bool:
    if one.tag == "iframe" and "sandbox" in one.attributes:
        return one.attributes["sandbox"] not in (None, "")
    if one.tag == "iframe" and one.attributes.get("class", "").startswith("shown-template"):  # checked by its content
        return bool(active_payloads(one.attributes.get("srcdoc", "")))
    handles = any(name.startswith(("on", "srcdoc")) for name in one.attributes)
    script = one.tag == "script" and "src" not in one.attributes
    return handles or script or one.attributes.get("href", "").startswith("javascript:")


@pytest.mark.parametrize("payload", [f"<b>{body}</b>" for body in BODIES if body.startswith("<")] + [f"<a{BODIES[6]}>"])
def test_checker_finds_unescaped_payloads(payload: str) -> None:
    assert active_payloads(f"<p>{payload}</p>") and not active_payloads(f"<p>{escape(payload)}</p>")


def test_injected_payloads_run_on_no_page(visited: Visited) -> None:
    """Parse every page, and open one of each kind in a browser."""
    page, paths, browsed = visited
    response, dialogs = 0, list[str]()
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    for path in paths:
        read = page.request.get(path)
        assert read.status in (200, 404), (path, read.status)
        assert active_payloads(read.text()) == [], path
        response += "window.hit" in unescape(read.text())
    for path in paths if FULL else browsed:
        page.goto(path)
        for frame in page.frames:
            assert frame.evaluate("window.hit") is None, path
    assert not dialogs
    assert response >= 10, "the payloads were hardly on any page: this test looks at the wrong ones"
