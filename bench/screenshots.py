"""Pictures of the dashboard: three for the README, or with --all every page, light and dark, desktop and phone.

Starts a demo of its own in a temporary folder, sends a few messages, and ends it.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parents[1]
SCREENS = HERE / "docs" / "screens"
TEAM, SANDBOX, NEW = (f"/dashboard/teams/team_{name}" for name in ("demo", "demo_sandbox", "new"))
OPERATOR, TEMPLATE = "/dashboard/operator", f"{TEAM}/templates/tpl_demo_welcome"
README = {"overview": TEAM, "message": f"{TEAM}/messages/:email", "templates": f"{TEAM}/templates"}
LISTS = (
    *("messages", "verifications", "inbox", "templates", "senders", "suppressions", "keys", "webhooks", "events"),
    *("requests", "start", "billing", "settings", "team", "audit"),
)
# Name → path; :word is an id that `furnish` found.
PAGES = {
    "overview": TEAM,
    **{name: f"{TEAM}/{name}" for name in LISTS},
    **{f"message-{channel}": f"{TEAM}/messages/:{channel}" for channel in ("email", "sms", "whatsapp", "bounced")},
    **{f"inbox-{channel}": f"{TEAM}/inbox?channel={channel}" for channel in ("sms", "whatsapp", "verification")},
    **{f"inbox-item-{channel}": f"{TEAM}/inbox/:{channel}" for channel in ("email", "sms", "whatsapp")},
    "verification": f"{TEAM}/verifications/:verification",
    "template": TEMPLATE,
    "template-edit": f"{TEMPLATE}/edit",
    "template-edit-whatsapp": f"{TEAM}/templates/tpl_demo_whatsapp/edit",
    "template-new-sms": f"{TEAM}/templates/new?channel=sms",
    "template-version": f"{TEMPLATE}/versions/2",
    "template-preview": f"{TEAM}/templates/tpl_demo_sms/preview",
    "domain": f"{TEAM}/senders/domains/dom_demo",
    "domain-new": f"{TEAM}/senders/domains/:domain",
    "webhook": f"{TEAM}/webhooks/:webhook",
    "webhook-delivery": f"{TEAM}/webhooks/:webhook/deliveries/:event",
    "key": f"{TEAM}/keys/:key",
    "import": f"{TEAM}/suppressions/imports/:import",
    "suppression-remove": f"{TEAM}/suppressions/remove?email=a%40example.com",
    "suppression-erase": f"{TEAM}/suppressions/erase",
    "sandbox-overview": SANDBOX,
    "sandbox-senders": f"{SANDBOX}/senders",
    "sandbox-settings": f"{SANDBOX}/settings",
    "sandbox-recipient": f"{SANDBOX}/senders/recipients?address=me%40example.com",
    **{f"new-{name or 'overview'}": f"{NEW}/{name}".rstrip("/") for name in ("", *LISTS)},
    "teams": "/dashboard",
    "account": "/dashboard/account",
    "totp": "/dashboard/account/totp",
    "error": f"{TEAM}/nothing",
    **{f"operator-{name or 'teams'}": f"{OPERATOR}/{name}".rstrip("/")
       for name in ("", "approvals", "carriers", "queues", "people", "audit")},
    "operator-team": f"{OPERATOR}/teams/team_demo",
    "operator-person": f"{OPERATOR}/people/:person",
}  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
    "phone-dark": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}
SENDS = [
    *(("emails", {"to": f"{word}@simulator.test", "from": "hello@demo.test", "subject": subject, "text": "Hello."})
      for word, subject in (("delivered", "Your receipt"), ("bounced", "Welcome"), ("complained", "News"),
                            ("softbounce", "Your order is on its way"), ("delivered", "Your invoice"))),
    ("sms", {"to": "+15005550006", "template_id": "tpl_demo_sms", "variables": {"parcel": "4711"}}),
    ("whatsapp", {"to": "+15005550006", "template_id": "tpl_demo_whatsapp", "variables": {"parcel": "4711"}}),
    ("verify", {"to": "+15005550006"}),
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="every page into this folder")
    everything = parser.parse_args().all
    folder = Path(tempfile.mkdtemp())
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HELIOGRAPH_")}
    command = [sys.executable, "-m", "heliograph.cli.main", "demo", "--listen", "127.0.0.1:0", "--data", str(folder)]
    service = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        link, key = read_welcome(service)
        base = link.partition("/dashboard")[0]
        send_some(base, key)
        shoot(link, everything)
    finally:
        service.terminate()
        service.wait()
        shutil.rmtree(folder)


def read_welcome(service: "subprocess.Popen[str]") -> tuple[str, str]:
    link = key = ""
    assert service.stdout
    for line in service.stdout:
        if found := re.match(r"Dashboard +(\S+)", line):
            link = found[1]
        if found := re.match(r"Live key +(\S+)", line):
            key = found[1]
            return link, key
    raise SystemExit("the demo did not start")


def send_some(base: str, key: str) -> None:
    for path, body in SENDS * 3:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{base}/v1/{path}", json.dumps(body).encode(), headers)
        urllib.request.urlopen(request, timeout=10).close()
    time.sleep(3)  # until the simulators have said all


def shoot(link: str, everything: Path | None) -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("there is no chromium on this machine (apt-get install chromium)")
    base = link.partition("/dashboard")[0]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        first = browser.new_context(base_url=base, **SHAPES["light"])
        page = first.new_page()
        page.set_default_timeout(10_000)
        page.goto(link)
        if everything:
            keep(page, everything / "link-light.png")
        page.get_by_role("button", name="Open the dashboard").click()
        page.wait_for_url("**/dashboard")
        ids = find_ids(page)
        if everything:
            ids |= furnish(page, everything)
        state = first.storage_state()
        for shape, options in SHAPES.items() if everything else [("light", SHAPES["light"])]:
            stranger = browser.new_context(base_url=base, **options).new_page()
            page = browser.new_context(base_url=base, storage_state=state, **options).new_page()
            for name, path in (PAGES if everything else README).items():
                page.goto(re.sub(":([a-z]+)", lambda found: ids[found[1]], path))
                keep(page, everything / f"{name}-{shape}.png" if everything else SCREENS / f"{name}.png", everything)
            if everything:
                stranger.goto("/dashboard/sign-in")
                keep(stranger, everything / f"sign-in-{shape}.png")
        browser.close()


def keep(page: Any, target: Path, whole: object = True) -> None:
    page.wait_for_load_state()
    target.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=target, full_page=bool(whole))
    wide = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    print(target, "IS WIDER THAN THE SCREEN" if wide else "", flush=True)


def find_ids(page: Any) -> dict[str, str]:
    """One message of each channel."""
    ids = {}
    for name, query in {"email": "channel=email&status=delivered", "sms": "channel=sms", "whatsapp": "channel=whatsapp",
                        "bounced": "status=bounced"}.items():  # fmt: skip
        page.goto(f"{TEAM}/messages?{query}")
        ids[name] = linked(page, "main table a")
    return ids


def linked(page: Any, link: str) -> str:
    return str(page.locator(link).first.get_attribute("href")).rpartition("/")[2]


def furnish(page: Any, folder: Path) -> dict[str, str]:
    """What the demo has not: a webhook that fails, a second version, an import, a new team, somebody invited."""
    ids = {}
    page.on("dialog", lambda dialog: dialog.accept())
    fill(page, f"{TEAM}/webhooks", {"URL": "https://hook.invalid/heliograph", "Events": "*"}, "Add it")
    keep(page, folder / "webhook-secret-light.png")
    page.goto(f"{TEAM}/webhooks")
    ids["webhook"] = linked(page, "main table a")
    page.goto(f"{TEAM}/webhooks/{ids['webhook']}")
    page.get_by_role("button", name="Send a test event").click()
    page.wait_for_url("**/deliveries/*")
    ids["event"] = page.url.rpartition("/")[2]
    fill(page, f"{TEMPLATE}/edit", {"Subject": "Hello {{customer.name}}, and welcome"}, "Save")
    fill(page, f"{TEAM}/senders", {"Domain": "mail.example.com"}, "Add the domain")
    ids["domain"] = page.url.rpartition("/")[2]
    fill(page, f"{TEAM}/senders", {"Domain": "no domain"}, "Add the domain")
    keep(page, folder / "wrong-field-light.png")
    fill(page, f"{TEAM}/keys", {"Name": "shop"}, "Make the key")
    keep(page, folder / "key-secret-light.png")
    page.goto(f"{TEAM}/keys")
    ids["key"] = linked(page, "main table a")
    fill(page, f"{TEAM}/team", {"Email address": "bob@example.com", "Name": "Bob"}, "Invite")
    keep(page, folder / "invited-light.png")
    fill(page, f"{OPERATOR}/people", {"Email address": "eve@example.com"}, "Add")
    page.goto(f"{OPERATOR}/people")
    ids["person"] = linked(page, "main table a")
    fill(page, OPERATOR, {"Name": "New team", "Id": "team_new"}, "Make the team")
    fill(page, f"{SANDBOX}/senders", {"Email address or phone": "me@example.com"}, "Send a code")
    page.goto(f"{TEAM}/verifications")
    ids["verification"] = linked(page, "main table a")
    page.goto(f"{TEAM}/suppressions")
    page.get_by_text("Import a CSV file").click()
    file = {
        "name": "list.csv",
        "mimeType": "text/csv",
        "buffer": b"a@example.com\nnot an address\nb@example.com,bounce",
    }
    page.get_by_label("File").set_input_files([file])
    page.get_by_role("button", name="Import", exact=True).click()
    page.wait_for_url("**/imports/*")
    ids["import"] = page.url.rpartition("/")[2]
    return ids


def fill(page: Any, path: str, fields: dict[str, str], button: str) -> None:
    page.goto(path)
    for label, value in fields.items():
        page.get_by_label(label, exact=True).fill(value)
    page.get_by_role("button", name=button, exact=True).click()
    page.wait_for_load_state()


if __name__ == "__main__":
    main()
