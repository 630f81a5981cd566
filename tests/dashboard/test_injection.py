"""A hundred script-injection payloads in what teams can write: shown, and run on no page (reliability, threats)."""

import itertools
import json
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

from heliograph.dashboard.pages import PAGES
from tests.dashboard.conftest import Site
from tests.dashboard.outline import Element, outline
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
SMALL = {"width": 640, "height": 300}  # what is not painted costs nothing, and runs all the same
LISTS = [
    route.path.format(team=TEAM)
    for route in PAGES
    if route.method == "GET"
    and route.need != "anyone"
    and route.path.count("{") == route.path.count("{team}")
    and not route.path.endswith((".csv", "/export", "/live", "/zone", "/start/own"))
]


Visited = tuple[Any, list[str], list[str]]


def quoted(text: str) -> str:
    return json.dumps(text)


def setup() -> str:
    """Names of all kinds, each a payload; single fields hold several at once."""
    several = "".join(PAYLOADS[::11])[:200]
    lines = [f"[platform]\nbrand = {quoted(several)}\n[[teams]]\nid = {quoted(TEAM)}\nname = {quoted(several)}"]
    for number, payload in enumerate(PAYLOADS):
        body = quoted(payload.replace("{{", "{").replace("}}", "}"))
        lines += [
            f"[[teams.templates]]\nid = 'tpl_x{number}'\nchannel = 'email'\nname = {quoted(payload)}",
            f"subject = {body}\nhtml = {body}\ntext = {body}",
            f"[[teams.keys]]\nname = {quoted(payload)}",
        ]
    lines.append(f"[[teams.domains]]\nid = 'dom_acme'\nname = 'acme.test'\nbrand = {quoted(several)}")
    for number, payload in enumerate(PAYLOADS):
        lines.append(f"[[teams.domains.display_names]]\nid = 'dn_x{number}'\nname = {quoted(payload)}")
    return "\n".join(lines)


def fill(site: Site, folder: Path) -> dict[str, str]:
    """Put every payload wherever it can be written; answers ids to look at."""
    file = folder / "payloads.toml"
    file.write_text(setup())
    site.service.apply(file)
    sent = ""
    for payload in PAYLOADS:
        mail = {"to": "failed@simulator.test", "from": "hello@acme.test", "subject": payload, "html": payload}
        answer = site.service.post("/v1/emails", mail)
        assert answer.status == 202, answer.raw
        sent = answer.json["id"]
        sms = {"to": "+15005550006", "template_id": "tpl_sms", "variables": {"parcel": payload}}
        assert site.service.post("/v1/sms", sms).status == 202
    hook = ""
    for payload in PAYLOADS[::4]:
        wanted = {"url": "http://127.0.0.1:9/" + "x", "events": ["*"], "description": payload}
        hook = site.service.post("/v1/webhooks", wanted).json["id"]
    until(lambda: site.service.get(f"/v1/emails/{sent}").json["status"] == "failed")
    return {"message": sent, "webhook": hook}


@pytest.fixture
def visited(site: Site, tmp_path: Path) -> Visited:
    """A browser, all pages, and one of each kind."""
    ids = fill(site, tmp_path)
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
        f"{base}{place}"
        for place in ("/messages", "/templates", "/keys", "/templates/tpl_x0", "/templates/tpl_x0/edit")
    ]
    return page, [*LISTS, *single], [*some, *single[:4]]


def became(html: str) -> list[str]:
    """What payloads have become that were not escaped; the policy would still keep them from running."""
    return [str(one) for one in outline(html) if _runs(one)]


def _runs(one: Element) -> bool:
    if one.tag == "iframe" and "sandbox" in one.attributes:
        return one.attributes["sandbox"] not in (None, "")
    if one.tag == "iframe" and one.attributes.get("class", "").startswith("shown-template"):  # ours: judged by its text
        return bool(became(one.attributes.get("srcdoc", "")))
    handles = any(name.startswith(("on", "srcdoc")) for name in one.attributes)
    script = one.tag == "script" and "src" not in one.attributes
    return handles or script or one.attributes.get("href", "").startswith("javascript:")


@pytest.mark.parametrize("payload", [f"<b>{body}</b>" for body in BODIES if body.startswith("<")] + [f"<a{BODIES[6]}>"])
def test_what_is_not_escaped_is_found(payload: str) -> None:
    assert became(f"<p>{payload}</p>") and not became(f"<p>{escape(payload)}</p>")


def test_no_payload_runs_anywhere(visited: Visited) -> None:
    """Every page is read; a browser opens one of each kind."""
    page, paths, browsed = visited
    shown, dialogs = 0, list[str]()
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    for path in paths:
        read = page.request.get(path)
        assert read.status in (200, 404), (path, read.status)
        assert became(read.text()) == [], path
        shown += "window.hit" in unescape(read.text())
    for path in paths if FULL else browsed:
        page.goto(path)
        for frame in page.frames:
            assert frame.evaluate("window.hit") is None, path
    assert not dialogs
    assert shown >= 10, "the payloads were hardly on any page: this test looks at the wrong ones"
