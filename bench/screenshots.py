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
TEAM = "/dashboard/teams/team_demo"
README = {"overview": TEAM, "message": TEAM + "/messages", "templates": TEAM + "/templates"}
PAGES = {
    name: f"{TEAM}/{name}"
    for name in (
        *("messages", "verifications", "inbox", "templates", "senders", "suppressions", "keys", "webhooks", "events"),
        *("requests", "start", "money", "settings", "team", "audit"),
    )
} | {
    "overview": TEAM,
    "teams": "/dashboard",
    "account": "/dashboard/account",
    **{f"operator-{name or 'teams'}": f"/dashboard/operator/{name}".rstrip("/")
       for name in ("", "approvals", "carriers", "queues", "people", "audit")},
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
        first = browser.new_context(**SHAPES["light"])
        page = first.new_page()
        page.goto(link)
        page.get_by_role("button", name="Open the dashboard").click()
        page.wait_for_url("**/dashboard")
        state = first.storage_state()
        for shape, options in SHAPES.items() if everything else [("light", SHAPES["light"])]:
            page = browser.new_context(storage_state=state, **options).new_page()
            for name, path in (PAGES if everything else README).items():
                page.goto(base + path)
                if name == "message" or (everything and name == "messages"):
                    if everything:
                        page.screenshot(path=everything / f"messages-{shape}.png", full_page=True)
                    page.locator("main table a").first.click()
                    page.wait_for_load_state()
                    name = "message"
                target = everything / f"{name}-{shape}.png" if everything else SCREENS / f"{name}.png"
                target.parent.mkdir(parents=True, exist_ok=True)
                page.screenshot(path=target, full_page=bool(everything))
                print(target)
        browser.close()


if __name__ == "__main__":
    main()
