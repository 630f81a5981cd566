"""Takes screenshots of the dashboard and docs: those of the README and the guides, or with --all every page.

Each page is shown wide and as on a phone, light and dark. Starts a demo in a temporary folder with a bookshop
(shop.toml) that has sent for two weeks: simulators respond, and the clock is advanced between the sends. Then it
follows the links of every page, and ends the demo.
"""

import argparse
import http.server
import io
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from heliograph.cli.options import with_store
from heliograph.domain.setup.keys import make_token
from heliograph.manage.people import sign_in_by_provider
from heliograph.settings import Settings
from heliograph.storage.people import Identity

Scheme = Literal["light", "dark"]
PASSWORD = "correct horse battery"
ISSUER = "http://127.0.0.1:1"  # no server listens there
# Capabilities of the virtual authenticator.
DEVICE = {"protocol": "ctap2", "transport": "internal", "automaticPresenceSimulation": True} | dict.fromkeys(
    ("hasResidentKey", "hasUserVerification", "isUserVerified"), True
)
HERE = Path(__file__).parents[1]
SCREENS, SHOP = HERE / "docs" / "screens", Path(__file__).with_name("shop.toml")
LONG = HERE / "tests" / "dashboard" / "long.toml"  # data that breaks pages
TEAM, SANDBOX, NEW, WIDE = (f"/dashboard/teams/team_{name}" for name in ("lantern", "demo_sandbox", "new", "acme"))
OPERATOR = "/dashboard/operator"
README = {
    "overview": TEAM,
    "template": f"{TEAM}/templates/tpl_order_confirmation",
}
GUIDES = {"template-editor": f"{TEAM}/templates/tpl_order_confirmation/edit"}  # only light
# Start pages; pages that they link to are found automatically.
STARTS = (TEAM, OPERATOR, "/dashboard", "/dashboard/account", "/docs")
# One page of each of these kinds suffices; all other pages are identified by their path without ids.
ONE = (r"/docs/api/\w+", r"/docs/errors/\w+", r"/docs/guides/[\w-]+")
ID = re.compile(
    r"(team|tpl|dom|dn|whk|evt|eml|sms|wam|vrf|per|prs|sid|snd|req|imp|lnk|usr)_\w+|[0-9A-Za-z]{10}|\d+|.*@.*|\+\d+"
)
KEPT = ("channel", "tab", "view", "kind")  # query parameters that select another page
# Pages that links do not lead to. :word is an id from `find_ids`.
MORE = {
    **{f"message-{word}": f"{TEAM}/messages/:{word}" for word in ("email", "sms", "whatsapp", "bounced", "deferred")},
    **{f"sandbox{place.replace('/', '-')}": SANDBOX + place for place in ("", "/inbox", "/senders", "/settings")},
    **{f"new{place.replace('/', '-')}": NEW + place for place in (
        *("", "/messages", "/verifications", "/inbox", "/templates", "/senders", "/suppressions", "/keys", "/webhooks"),
        *("/events", "/requests", "/start", "/billing", "/team", "/audit"),
    )},
    **{f"long{place.replace('/', '-')}": WIDE + place for place in (
        *("", "/messages", "/templates", "/templates/tpl_right_to_left", "/senders", "/senders/domains/dom_long"),
        *("/suppressions", "/keys", "/webhooks", "/events", "/billing", "/settings", "/team", "/audit"),
    )},
    "search": f"{TEAM}/search?q=order",
    "not-found": f"{TEAM}/nothing",
    "docs-search": "/docs?q=bounce",
    "docs-not-found": "/docs/api/nothing",
}  # fmt: skip
STRANGERS = {
    "sign-in": "/dashboard/sign-in",
    "sign-in-left": "/dashboard/sign-in?out",
    "sign-in-provider-away": "/dashboard/sign-in/provider",
}
SIZES: dict[str, ViewportSize] = {"1440": {"width": 1440, "height": 900}, "390": {"width": 390, "height": 844}}
DAY_MS = 86_400_000
NAMES = ("ada", "ben", "chloe", "david", "elif", "fatima", "george", "hana", "ines", "jonas", "kim", "lena", "marco")
FAMILIES = ("moss", "okafor", "lind", "weber", "rossi")
SHARES = {"order": 54, "reset": 24, "direct": 18, "sms": 30, "whatsapp": 24, "verify": 18, "bad": 1, "wrong": 2}
BOOKS = ("The Overstory", "Middlemarch", "Piranesi", "Austerlitz", "The Summer Book", "Stoner", "Gilead")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="every page into this folder")
    parser.add_argument("--dark", choices=("all", "none"), default="all", help="with --all: the dark ones too")
    parser.add_argument("--size", choices=SIZES, help="with --all: of this width only")
    parser.add_argument("--only", default="", metavar="PATTERN", help="with --all: pages whose name has this in it")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    random.seed(14)
    try:
        command(folder, "apply", str(SHOP))
        with running(folder, shifted=True) as (process, link):
            live_two_weeks(process, link.partition("/dashboard")[0])
        invitation = invite(folder)
        with running(folder) as (_, link):
            base = link.partition("/dashboard")[0]
            furnish(base)
            if given.all:
                trouble(base)
                command(folder, "apply", str(LONG))
            time.sleep(3)  # until the simulators have said all
            schemes: tuple[Scheme, ...] = ("light",) if given.all and given.dark == "none" else ("light", "dark")
            if given.all:
                album = Album(given.all, schemes, (given.size,) if given.size else (*SIZES,), given.only)
                shoot_all(link, invitation, album)
            else:
                shoot_readme(link, schemes)
    finally:
        shutil.rmtree(folder)


# -- the shop ------------------------------------------------------------------------------------------------

KEY = make_token(bytes(range(64)))
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("HELIOGRAPH_")} | {
    "SHOP": KEY,
    "LONG": make_token(bytes(64)),
}
SETTINGS = {
    "HELIOGRAPH_SIMULATOR_STEP_MS": "1",
    "HELIOGRAPH_BOUNCE_LISTEN": "off",
    "HELIOGRAPH_WEBHOOK_ALLOW_PRIVATE": "127.0.0.0/8",
    "HELIOGRAPH_OIDC_ISSUER": ISSUER,
    "HELIOGRAPH_OIDC_CLIENT_ID": "heliograph",
    "HELIOGRAPH_OIDC_NAME": "Example ID",
}
PROGRAM = "from heliograph.cli.main import main; main()"
# Both clocks are ahead by the number of ms last read from standard input.
SHIFTED = """\
import sys, threading, time
ahead = [-14 * 86_400_000_000_000]
wall, count = time.time_ns, time.monotonic_ns
time.time_ns = lambda: wall() + ahead[0]
time.monotonic_ns = lambda: count() + ahead[0] + 15 * 86_400_000_000_000
def listen():
    for line in sys.stdin:
        ahead[0] = int(line) * 1_000_000
threading.Thread(target=listen, daemon=True).start()
"""


def command(folder: Path, *words: str) -> str:
    where = ["--data", str(folder), "--database", f"sqlite:///{folder / 'heliograph.db'}"]
    given = [sys.executable, "-c", PROGRAM, *words, *where]
    return subprocess.run(given, env=ENVIRONMENT, check=True, stdout=subprocess.PIPE, text=True).stdout


def invite(folder: Path) -> str:
    """Return the link of a read-only operator; also link the demo's person to an identity provider."""
    settings = Settings(data=folder, database=f"sqlite:///{folder / 'heliograph.db'}")
    known = Identity(issuer=ISSUER, subject="demo", email="demo@heliograph.test", name="Demo")
    with_store(settings, "Connecting", lambda store: sign_in_by_provider(store, "127.0.0.1", known, {}, "Example ID"))
    return command(folder, "user", "add", "auditor@example.com", "--operator", "--read-only").strip()


@contextmanager
def running(folder: Path, *, shifted: bool = False) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Run a demo and yield the link that signs in to it. It has a host name, because passkeys need one."""
    program, port = SHIFTED + PROGRAM if shifted else PROGRAM, free_port()
    command = [sys.executable, "-c", program, "demo", "--listen", f"127.0.0.1:{port}", "--data", str(folder)]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=ENVIRONMENT | SETTINGS | {"HELIOGRAPH_PUBLIC_URL": f"http://localhost:{port}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout
        link = next((found[1] for line in process.stdout if (found := re.match(r"Dashboard +(\S+)", line))), "")
        if not link:
            raise SystemExit("the demo did not start")
        for line in process.stdout:
            if line.startswith("Stop"):
                break
        yield process, link
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def post(base: str, path: str, body: object, method: str = "POST") -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{base}/v1/{path}", json.dumps(body).encode(), headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:  # some are refused on purpose
        return {"error": error.code}


class Receiver(http.server.BaseHTTPRequestHandler):
    """The shop's own program, which accepts every event."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"received": true}')

    def log_message(self, format: str, *args: Any) -> None:
        pass


def live_two_weeks(process: "subprocess.Popen[str]", base: str) -> None:
    """Send messages day by day, and hour by hour through the last day."""
    receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    hook = f"http://localhost:{receiver.server_port}/hooks/mail"
    post(base, "webhooks", {"url": hook, "events": ["email.*", "sms.*"], "description": "Order status in the shop"})
    moments = [-day * DAY_MS - random.randrange(DAY_MS // 3) for day in range(13, 0, -1)]
    moments += [-hour * 3_600_000 for hour in range(23, 0, -1)]
    assert process.stdin
    for at in moments:
        process.stdin.write(f"{at}\n")
        process.stdin.flush()
        time.sleep(0.3)
        for _ in range(random.randrange(18, 34) if at < -DAY_MS else random.randrange(5, 18)):
            send_one(base)
        time.sleep(0.7)  # until the simulators have said all


def send_one(base: str) -> None:
    name, order = random.choice(NAMES), f"LB-{random.randrange(4000, 4999)}"
    phone = random.choice(("+15005550006", "+15005550006", "+447400123456", "+4915112345678", "+15005550005"))
    address = f"{name}.{random.choice(FAMILIES)}@example.{random.choice(('com', 'org'))}"
    kind = random.choices([*SHARES], [*SHARES.values()])[0]
    sender = {"from": "orders@lanternbooks.example"}
    match kind:
        case "order":
            total = f"€{random.randrange(12, 80)}.90"
            values = {"name": name.title(), "order": order, "total": total}
            post(base, "emails", sender | {"to": address, "template_id": "tpl_order_confirmation", "variables": values})
        case "reset":
            values = {"name": name.title(), "link": "https://lanternbooks.example/reset"}
            post(base, "emails", sender | {"to": address, "template_id": "tpl_password_reset", "variables": values})
        case "direct":
            book = random.choice(BOOKS)
            text = f"{book} is back on our shelf."
            post(base, "emails", sender | {"to": address, "subject": f"Back in stock: {book}", "text": text})
        case "sms":
            values = {"order": order, "day": random.choice(("today", "tomorrow", "on Friday"))}
            post(base, "sms", {"to": phone, "template_id": "tpl_parcel", "variables": values})
        case "whatsapp":
            values = {"name": name.title(), "day": "Saturday"}
            post(base, "whatsapp", {"to": phone, "template_id": "tpl_pickup", "variables": values})
        case "verify":
            started = post(base, "verify", {"to": "+15005550006"})
            if random.random() < 0.8:
                post(base, f"verify/{started.get('id')}/check", {"code": "000000"})
        case "bad":
            to = random.choice(("bounced", "bounced", "softbounce", "softbounce", "asyncbounce"))
            values = {"name": name.title(), "order": order, "total": "€19.90"}
            mail = {"to": f"{to}+{name}@simulator.test", "template_id": "tpl_order_confirmation", "variables": values}
            post(base, "emails", sender | mail)
        case "wrong":
            to = random.choice(("ada.moss", "please.stop@example.org"))
            post(base, "emails", sender | {"to": to, "subject": "Your order", "text": "It is on its way."})


def furnish(base: str) -> None:
    """Add records that two weeks of sends do not create."""
    for to in ("delivered", "bounced", "softbounce"):
        values = {"name": "Ada", "order": "LB-4711", "total": "€24.90"}
        mail = {"to": f"{to}+ada@simulator.test", "template_id": "tpl_order_confirmation", "variables": values}
        post(base, "emails", {"from": "orders@lanternbooks.example"} | mail)
    for word in ("sms", "whatsapp"):
        template = {"sms": "tpl_parcel", "whatsapp": "tpl_pickup"}[word]
        values = {"order": "LB-4711", "day": "today"} if word == "sms" else {"name": "Ada", "day": "Saturday"}
        post(base, word, {"to": "+15005550006", "template_id": template, "variables": values})
    post(base, "keys", {"name": "newsletter", "scopes": ["send"]})


def trouble(base: str) -> None:
    """Add problems: a domain without its records, a webhook that does not respond, complaints."""
    post(base, "domains", {"name": "news.lanternbooks.example", "brand": "Lantern Books"})
    post(base, "webhooks", {"url": "https://analytics.lanternbooks.example/events", "events": ["*"]})
    for to in ("complained", "failed"):
        mail = {"to": f"{to}+ada@simulator.test", "subject": "Autumn reading list", "text": "Eleven books."}
        post(base, "emails", {"from": "events@lanternbooks.example"} | mail)


# -- the pictures --------------------------------------------------------------------------------------------


class Album(NamedTuple):
    folder: Path
    schemes: tuple[Scheme, ...]
    sizes: tuple[str, ...]
    only: str = ""  # only pages whose name contains this text


@contextmanager
def chromium() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("there is no chromium on this machine (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def enter(browser: Browser, link: str, password: str = "") -> Page:
    """Return a page signed in through a link."""
    page = browser.new_context(base_url=link.partition("/dashboard")[0], viewport=SIZES["1440"]).new_page()
    page.set_default_timeout(15_000)
    page.goto(link)
    if password:
        page.get_by_label("New password").fill(password)
    page.locator("main form button.main").first.click()
    page.wait_for_url(re.compile(r"/dashboard(/teams/\w+)?$"))
    return page


def shoot_readme(link: str, schemes: tuple[Scheme, ...]) -> None:
    with chromium() as browser:
        page = enter(browser, link)
        for scheme in schemes:
            page.emulate_media(color_scheme=scheme)
            animate(page, scheme)
            for name, path in README.items():
                go(page, path)
                keep_small(page, SCREENS / f"{name}-{scheme}.png")
        page.emulate_media(color_scheme="light")
        for name, path in GUIDES.items():
            go(page, path)
            keep_small(page, SCREENS / f"{name}.png")


TERMINAL = """\
<style>
  :root { color-scheme: light dark }
  body { margin: 0; padding: 90px 110px; font: 22px/1.6 monospace; white-space: pre }
  body { background: light-dark(#f6f7f9, #14161a) }
  b { color: light-dark(#0a6, #4d9) }
</style>"""


def animate(page: Page, scheme: Scheme) -> None:
    """Save the README's animation: a request that sends an email, the email in the list, and why it bounced."""
    base = page.url.partition("/dashboard")[0]
    mail = {"to": "bounced@simulator.test", "from": "orders@lanternbooks.example", "subject": "Your order LB-4712"}
    sent = post(base, "emails", mail | {"text": "It is on its way."})
    shown = {name: sent[name] for name in ("id", "to", "status", "created_at")}
    fields = ",\n       ".join(f'"{name}": "{value}"' for name, value in (mail | {"text": "It is on its way."}).items())
    request = (
        '<b>$</b> curl http://127.0.0.1:8700/v1/emails -H "Authorization: Bearer $KEY" \\\n'
        "  -H 'Content-Type: application/json' \\\n  -d '{" + fields + "}'\n\n"
    )
    images = []
    for step in ("send", "list", "explain"):
        if step == "send":
            page.goto("about:blank")
            page.set_content(TERMINAL + request + json.dumps(shown, indent=2))
        elif step == "list":
            go(page, f"{base}{TEAM}/messages")
        else:
            page.locator(f'main a[href*="{sent["id"]}"]').first.click()
            page.get_by_text("Timeline").wait_for()
        images.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(256, dither=Image.Dither.NONE))
    target = SCREENS / f"bounce-{scheme}.gif"
    images[0].save(target, save_all=True, append_images=images[1:], duration=3_000, loop=0, optimize=True)
    print(target.name, target.stat().st_size // 1024, "KB", flush=True)


def shoot_all(link: str, invitation: str, album: Album) -> None:
    """Take all screenshots as an operator, a read-only operator, and an unknown visitor."""
    with chromium() as browser:
        strangers = STRANGERS | {"invitation-link": urlsplit(invitation).path}
        shoot(browser, strangers, album, base_url=link.partition("/dashboard")[0])
        operator = enter(browser, link)
        auditor = enter(browser, f"{link.partition('/dashboard')[0]}{urlsplit(invitation).path}", PASSWORD)
        add_passkey(auditor)
        ids = find_ids(operator)
        pages = {name: filled(path, ids) for name, path in {**walk(operator), **MORE}.items()}
        watched = {f"read-only-{name}": path for name, path in walk(auditor).items() if not name.startswith("docs")}
        for paths, page in ((pages, operator), (watched, auditor)):
            shoot(
                browser,
                paths,
                album,
                base_url=page.url.partition("/dashboard")[0],
                storage_state=page.context.storage_state(),
            )


def shoot(browser: Browser, paths: dict[str, str], album: Album, **options: Any) -> None:
    wanted = {name: path for name, path in paths.items() if re.search(album.only, name)}
    for scheme in album.schemes:
        for size in album.sizes:
            page = browser.new_context(viewport=SIZES[size], color_scheme=scheme, **options).new_page()
            for name, path in wanted.items():
                go(page, path)
                keep(page, album.folder / f"{name}-{size}-{scheme}.png")
            page.context.close()


def filled(path: str, ids: dict[str, str]) -> str:
    return re.sub(":([a-z]+)", lambda found: ids.get(found[1], "none"), path)


def add_passkey(page: Page) -> None:
    """Add a passkey with Chromium's virtual authenticator; without a password, re-authentication needs the provider."""
    session = page.context.new_cdp_session(page)
    session.send("WebAuthn.enable")
    session.send("WebAuthn.addVirtualAuthenticator", {"options": DEVICE})
    page.goto("/dashboard/account")
    page.get_by_label("Passkey name").fill("My laptop")
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_role("button", name="Add passkey").click()
    page.get_by_text("Passkey My laptop added.").wait_for()


def go(page: Page, path: str) -> None:
    page.goto(path, wait_until="load")
    page.wait_for_timeout(150)  # the page's script has run


def keep(page: Page, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=target, full_page=True)
    wide = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    print(target.name, "IS WIDER THAN THE SCREEN" if wide else "", flush=True)


def keep_small(page: Page, target: Path) -> None:
    """Save the image with a palette: a third of the size, without a visible difference."""
    page.screenshot(path=target)
    Image.open(target).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(target, optimize=True)
    print(target.name, target.stat().st_size // 1024, "KB", flush=True)


def find_ids(page: Page) -> dict[str, str]:
    """Return the id of a typical message of each kind."""
    ids = {}
    queries = {
        "email": "channel=email&status=delivered",
        "sms": "channel=sms",
        "whatsapp": "channel=whatsapp",
        "bounced": "status=bounced",
        "deferred": "q=softbounce",
    }
    for name, query in queries.items():
        page.goto(f"{TEAM}/messages?{query}")
        links = page.locator('main a[href*="/messages/"]')
        hrefs = [str(one.get_attribute("href")) for one in links.all()]
        ids[name] = next((found[0] for href in hrefs if (found := re.search(r"(eml|sms|wam)_\w{26}", href))), "none")
    return ids


def walk(page: Page) -> dict[str, str]:
    """Return name → path of one page of each kind, found by following links."""
    found: dict[str, str] = {}
    waiting = [*STARTS]
    while waiting:
        path = waiting.pop(0)
        name = name_of(path)
        if name in found:
            continue
        response = page.request.get(path)
        if not response.ok or "text/html" not in response.headers.get("content-type", ""):
            found[name] = ""
            continue
        found[name] = path
        for target in re.findall(r'href="(/(?:dashboard|docs)[^"#]*)', response.text()):
            target = target.replace("&amp;", "&")
            if "/teams/" not in target or f"{target}/".startswith((f"{TEAM}/", f"{TEAM}?", f"{OPERATOR}/teams/")):
                waiting.append(target)
    return {name: path for name, path in found.items() if path}


def name_of(path: str) -> str:
    """Return the same name for all pages of a kind."""
    parts = urlsplit(path)
    for kind in ONE:
        if re.fullmatch(kind, parts.path):
            return parts.path.rpartition("/")[0].strip("/").replace("/", "-") + "-one"
    words = ["x" if ID.fullmatch(part) else part for part in parts.path.strip("/").split("/")]
    kept = [key for key, _ in parse_qsl(parts.query) if key in KEPT]
    name = "-".join([*words, *dict.fromkeys(kept)])
    return name.replace("dashboard-teams-x", "team").replace("dashboard-", "")


if __name__ == "__main__":
    main()
