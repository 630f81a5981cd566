"""Runs every call of other services' unmodified clients against a running service: `make bench-calls`.

It counts calls that work, calls that are refused in the service's own format with a text, and calls that are wrong: a
fault, a bare 404 or a response that the client cannot read. It writes the table in docs/compat.md. `--before DIR` also
counts an older checkout. Clients that accept only a host name are redirected here by DNS name and a CA of our own,
through a proxy on port 443 of a loopback address, which needs root.
"""

import argparse
import asyncio
import itertools
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import requests
import resend
from anymail.message import AnymailMessage
from django.core.mail import get_connection
from postmarker.core import PostmarkClient
from requests.adapters import HTTPAdapter
from tests.compat import site
from tests.compat.resend_calls import HELLO, REFUSED, WORKS, ExistingRecords
from tests.service import TOKENS, free_port, until
from twilio.rest import Client

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "compat.md"
BEGIN, END = "<!-- calls: begin -->", "<!-- calls: end -->"
KEY, PHONE = TOKENS["ACME"], "+15005550006"
AT = "127.9.9.9"  # address to which the names below resolve
NAMES = {"api.resend.com": "resend", "postal.acme.test": "postal", "postmark.acme.test": "postmark"}
PACKAGES = ("@atech/postal", "@auth/core", "@payloadcms/email-resend", "postmark", "resend", "twilio")
BARE = re.compile("There is no such call here|is not possible here|no endpoint with this path|not support this method")
MAIL = {"From": "hello@acme.test", "To": "delivered@simulator.test", "Subject": "Hi", "TextBody": "Hi"}
WORDS = {"Subject": "Hi {{name}}", "TextBody": "Hi {{name}}", "HtmlBody": "<p>Hi {{name}}</p>"}

CallResults = dict[str, tuple[str, str]]  # call → (works, refused or wrong; error text)


def judge(status: int, words: str) -> tuple[str, str]:
    is_refused = 200 <= status < 500 and words and not BARE.search(words)
    return "refused" if is_refused else "wrong", f"{status} {words}"


def tried(calls: Mapping[str, Callable[[], Any]], read: Callable[[Any], tuple[int, str]]) -> CallResults:
    told: CallResults = {}
    for name, call in calls.items():
        try:
            call()
            told[name] = ("works", "")
        except Exception as error:
            try:
                told[name] = judge(*read(error))
            except Exception:
                told[name] = ("wrong", f"{type(error).__name__}: {error}"[:200])
    return told


# -- the service ---------------------------------------------------------------------------------------------------


class Running:
    def __init__(self, source: Path, folder: Path) -> None:
        self.source, self.folder, self.port = source, folder, free_port()
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HELIOGRAPH_")},
            **TOKENS,
            "PYTHONPATH": str(source / "src"),
            "HELIOGRAPH_DATABASE": f"sqlite:///{folder / 'heliograph.db'}",
            "HELIOGRAPH_DATA": str(folder / "data"),
            "HELIOGRAPH_LISTEN": f"127.0.0.1:{self.port}",
            "HELIOGRAPH_PROCESSES": "1",
            "HELIOGRAPH_SIMULATOR_STEP_MS": "1",
            "HELIOGRAPH_BOUNCE_LISTEN": "off",
            "HELIOGRAPH_RESOLVER": "127.0.0.1:9",
            "HELIOGRAPH_WEBHOOK_ALLOW_PRIVATE": "127.0.0.0/8",
        }
        self.base = f"http://127.0.0.1:{self.port}"

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "heliograph.cli.main", *arguments]

    def apply(self, file: Path) -> bool:
        done = subprocess.run(self.command("apply", str(file)), env=self.env, cwd=self.folder, capture_output=True)
        return done.returncode == 0

    def __enter__(self) -> "Running":
        assert self.apply(self.source / "tests" / "setup.toml")
        hosts = self.folder / "hosts.toml"
        named = ", ".join(f'"{name}" = "{service}"' for name, service in NAMES.items())
        hosts.write_text(f"[platform]\ncompat_hosts = {{ {named} }}\n")
        self.apply(hosts)  # an older revision may not support hosts
        self.process = subprocess.Popen(
            self.command("serve"), env=self.env, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        assert until(self.is_ready)
        return self

    def is_ready(self) -> bool:
        with suppress(requests.RequestException):
            return requests.get(f"{self.base}/readyz", timeout=5).ok
        return False

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def node(self, program: str, *arguments: str, **env: str) -> CallResults:
        """Run a Node program and return its result of each call; a program that ends early returns none."""
        for file in (*(ROOT / "bench" / "clients").iterdir(), *(ROOT / "tests" / "compat").glob("*.mjs")):
            shutil.copy(file, self.folder)
        command = ["node", str(self.folder / program), *arguments]
        options = os.environ | {"KEY": KEY, "NODE_NO_WARNINGS": "1"} | env
        done = subprocess.run(command, env=options, cwd=self.folder, capture_output=True, text=True, timeout=300)
        told = json.loads(done.stdout) if done.returncode == 0 else {}
        return {name: _became(one) for name, one in told.items()} or {program: ("wrong", done.stderr[-300:])}


def _became(one: Any) -> tuple[str, str]:
    refused = one.get("refused") or one.get("error")
    if not refused:
        return "works", ""
    return judge(int(refused.get("status") or refused.get("statusCode") or 0), str(refused.get("message") or ""))


# -- a CA and a proxy of our own -------------------------------------------------------------------------------------


def certify(folder: Path) -> None:
    """Create a CA and a certificate for the names, as described in docs/compat.md."""
    recipe = textwrap.dedent(re.search(r"```sh\n( +names=.*?)```", DOCS.read_text(), re.DOTALL)[1])  # type: ignore[index]
    named = ",".join(f"DNS:{name}" for name in NAMES)
    own = recipe.replace("names=DNS:api.resend.com", f"names={named}", 1)
    subprocess.run(["sh", "-ec", own], cwd=folder, check=True, capture_output=True)


@contextmanager
def in_front(port: int, folder: Path) -> Iterator[None]:
    """Run a proxy that terminates TLS and preserves `Host`."""
    certify(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "site.pem", folder / "site.key")
    loop = asyncio.new_event_loop()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(65536):
                writer.write(piece)
                await writer.drain()
        writer.close()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(carry(reader, back), carry(there, writer))

    loop.run_until_complete(asyncio.start_server(meet, AT, 443, ssl=context))
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


# -- the clients -------------------------------------------------------------------------------------------------------


def resend_ids(base: str) -> dict[str, str]:
    """Return the ids that the calls use; an older service may not have all of them."""
    resend.api_url, resend.api_key = f"{base}/compat/resend", KEY
    files = [{"filename": "a.pdf", "content": list(b"%PDF-1.4")}]
    ids = {"email": resend.Emails.send({**HELLO, "attachments": files})["id"], "webhook": "", "event": ""}  # type: ignore[typeddict-item]
    with suppress(Exception):
        hook = {"endpoint": "http://127.0.0.1:9/", "events": ["email.sent"]}
        ids["webhook"] = resend.Webhooks.create(hook)["id"]  # type: ignore[arg-type]
        resend.Emails.send(HELLO)  # type: ignore[arg-type]
        events = until(lambda: resend.Webhooks.list_events(ids["webhook"])["data"])
        ids["event"] = events[0]["id"]
        until(lambda: resend.Logs.list()["data"])
    return ids


def resend_python(ids: Mapping[str, str]) -> CallResults:
    numbers = itertools.count(1000)
    known = ExistingRecords(**ids, number=lambda: next(numbers))
    calls = WORKS | {name: call for name, (call, *_) in REFUSED.items()}
    return tried(
        {name: lambda call=call: call(known) for name, call in calls.items()},  # type: ignore[misc]
        lambda error: (int(error.code), error.message),
    )


def twilio_python(base: str) -> CallResults:
    client = Client("AC0123456789", KEY)
    client.api.base_url = client.verify.base_url = f"{base}/compat/twilio"  # type: ignore[method-assign]
    verify, content = client.verify.v2, {"to": PHONE, "content_sid": "tpl_sms", "content_variables": '{"parcel": "1"}'}
    service = verify.services("VA1")

    def later() -> str:
        at = datetime.now(UTC) + timedelta(hours=1)
        return str(client.messages.create(**content, schedule_type="fixed", send_at=at).sid)

    def ended() -> Any:
        message = client.messages(client.messages.create(**content).sid)
        until(lambda: message.fetch().status == "delivered")
        return message

    def begun() -> Any:
        return service.verifications.create(to=PHONE, channel="sms")

    return tried(
        {
            "messages.create": lambda: client.messages.create(**content),
            "messages.fetch": lambda: client.messages(later()).fetch(),
            "messages.list": lambda: client.messages.list(limit=3, page_size=2),
            "messages.page": lambda: client.messages.page(page_size=2),
            "messages.update, cancel": lambda: client.messages(later()).update(status="canceled"),
            "messages.update, redact": lambda: ended().update(body=""),
            "messages.remove": lambda: ended().delete(),
            "messages.media.list": lambda: ended().media.list(),
            "messages.feedback.create": lambda: ended().feedback.create(outcome="confirmed"),
            "services.create": lambda: verify.services.create(friendly_name="Acme"),
            "services.fetch": service.fetch,
            "services.list": verify.services.list,
            "services.update": lambda: service.update(friendly_name="Other"),
            "services.remove": service.delete,
            "verifications.create": begun,
            "verifications.fetch": lambda: service.verifications(begun().sid).fetch(),
            "verifications.update": lambda: service.verifications(begun().sid).update(status="canceled"),
            "verificationChecks.create": lambda: (
                begun() and service.verification_checks.create(to=PHONE, code="000000")
            ),
            "verificationAttempts.list": verify.verification_attempts.list,
            "verificationAttemptsSummary.fetch": lambda: verify.verification_attempts_summary().fetch(),
            "rateLimits.list": service.rate_limits.list,
            "messagingConfigurations.list": service.messaging_configurations.list,
            "webhooks.list": service.webhooks.list,
            "entities.list": service.entities.list,
            "accessTokens.create": lambda: service.access_tokens.create(identity="me", factor_type="push"),
            "templates.list": verify.templates.list,
            "safelist.create": lambda: verify.safelist.create(phone_number=PHONE),
            "forms.fetch": lambda: verify.variants("form-push").fetch(),
            "accounts.fetch": lambda: client.api.v2010.accounts("AC0123456789").fetch(),
            "balance.fetch": client.balance.fetch,
            "incomingPhoneNumbers.list": client.incoming_phone_numbers.list,
            "calls.create": lambda: client.calls.create(to=PHONE, from_=PHONE, url="http://127.0.0.1/"),
            "usage.records.list": client.usage.records.list,
        },
        twilio_error,
    )


def twilio_error(error: Any) -> tuple[int, str]:
    """Return the status and text of a Twilio error; for a list, the client raises the response itself."""
    if hasattr(error, "status"):
        return error.status, error.msg if error.code else ""
    told = json.loads(error.args[1].text)
    return told["status"], told["message"] if told["code"] else ""


class AtRoot(HTTPAdapter):
    """Directs the client to its host, as DNS and the proxy would."""

    port = 0

    def send(self, request: Any, *args: Any, **more: Any) -> Any:
        request.url = re.sub(r"^https?://[^/]+", f"http://127.0.0.1:{self.port}", request.url)
        request.headers["Host"] = "postmark.acme.test"
        return super().send(request, *args, **more)


def postmarker(port: int) -> CallResults:
    client = PostmarkClient(server_token=KEY, root_api_url="https://postmark.acme.test/")
    adapter = AtRoot()
    adapter.port = port
    client.session.mount("https://", adapter)
    sent = client.emails.send(**MAIL | {"To": "bounced@simulator.test"})["MessageID"] if _can(client) else "eml_none"
    found: list[Any] = []
    with suppress(Exception):
        found = until(lambda: [one for one in client.bounces.all(count=10) if one.MessageID == sent])
    bounce = found[0].ID if found else 1
    numbers = itertools.count(1)

    def template() -> Any:
        return client.templates.create(Name=f"postmarker {next(numbers)}", **WORDS).TemplateId

    welcome = {**MAIL, "TemplateAlias": "welcome", "TemplateModel": {"name": "Ada"}}
    for name in ("Subject", "TextBody"):
        welcome.pop(name)
    stats = {f"stats.{name}": getattr(client.stats, name) for name in ("overview", "sends", "bounces", "spam")}
    stats |= {f"stats.{n}": getattr(client.stats, n) for n in ("tracked", "opens", "opens_platforms", "emailclients")}
    stats |= {f"stats.{n}": getattr(client.stats, n) for n in ("readtimes", "clicks", "browserfamilies", "location")}
    return tried(
        {
            "emails.send": lambda: client.emails.send(**MAIL),
            "emails.send_batch": lambda: client.emails.send_batch(MAIL, MAIL),
            "emails.send_with_template": lambda: client.emails.send_with_template(**welcome),
            "emails.send_template_batch": lambda: client.emails.send_template_batch(welcome),
            "bounces.deliverystats": lambda: client.bounces.deliverystats,
            "bounces.tags": lambda: client.bounces.tags,
            "bounces.all": lambda: client.bounces.all(count=10),
            "bounces.get": lambda: client.bounces.get(bounce),
            "bounces.get_dump": lambda: client.bounces.get_dump(bounce),
            "bounces.activate": lambda: client.bounces.activate(bounce),
            "messages.outbound.all": lambda: client.messages.outbound.all(count=10),
            "messages.outbound.get": lambda: client.messages.outbound.get(sent),
            "messages.outbound.get_dump": lambda: client.messages.outbound.get_dump(sent),
            "messages.outbound.opens.all": lambda: client.messages.outbound.is_opening.all(count=10),
            "messages.inbound.all": lambda: client.messages.inbound.all(count=10),
            "messages.inbound.get": lambda: client.messages.inbound.get("1"),
            "messages.inbound.bypass": lambda: client.messages.inbound.bypass("1"),
            "messages.inbound.retry": lambda: client.messages.inbound.retry("1"),
            **stats,
            "stats.clicks_platforms": client.stats.clicks_platforms,
            "server.get": client.server.get,
            "server.edit": lambda: client.server.edit(Name="Other"),
            "templates.all": client.templates.all,
            "templates.get": lambda: client.templates.get("welcome"),
            "templates.create": template,
            "templates.edit": lambda: client.templates.edit(template(), Name="x", **WORDS),
            "templates.delete": lambda: client.templates.delete(template()),
            "templates.validate": lambda: client.templates.validate(**WORDS, TestRenderModel={"name": "Ada"}),
            "triggers.inboundrules.all": client.triggers.inboundrules.all,
            "triggers.inboundrules.create": lambda: client.triggers.inboundrules.create("a@example.com"),
            "triggers.inboundrules.delete": lambda: client.triggers.inboundrules.delete(1),
            "triggers.tags.all": client.triggers.tags.all,
            "triggers.tags.create": lambda: client.triggers.tags.create("tag"),
            "triggers.tags.delete": lambda: client.triggers.tags.delete(1),
        },
        lambda error: (422, re.fullmatch(r"\[\d+\] (.+)", str(error), re.DOTALL)[1]),  # type: ignore[index]
    )


def _can(client: PostmarkClient) -> bool:
    with suppress(Exception):
        return bool(client.emails.send(**MAIL))
    return False


def anymail(base: str) -> CallResults:
    """Send every feature of Anymail's backends in a mail of its own."""
    png = b"\x89PNG\r\n\x1a\n"

    def sends(backend: str, **options: Any) -> None:
        connection = get_connection(f"anymail.backends.{backend}.EmailBackend", **keys[backend])
        common = {"subject": "Hello", "body": "Hi", "from_email": "Acme <hello@acme.test>"}
        mail = AnymailMessage(**common | {"to": ["Ada <delivered@simulator.test>"]}, connection=connection)
        for name, value in options.items():
            setattr(mail, name, value)
        if options.get("html"):
            mail.attach_alternative("<p>Hi</p>", "text/html")
        if options.get("file"):
            mail.attach("a.pdf", b"%PDF-1.4", "application/pdf")
        if options.get("picture"):
            mail.attach_inline_image(png, "logo.png")
        assert mail.send() == 1

    keys: dict[str, Any] = {
        "resend": {"api_key": KEY, "api_url": f"{base}/compat/resend/"},
        "postmark": {"server_token": KEY, "api_url": f"{base}/compat/postmark/"},
        "postal": {"api_key": KEY, "api_url": f"{base}/compat/postal/"},
    }
    shared: dict[str, dict[str, Any]] = {
        "send": {},
        "html": {"html": True},
        "cc and bcc": {"cc": ["Bo <cc@simulator.test>"], "bcc": ["bcc@simulator.test"]},
        "reply_to": {"reply_to": ["Help <help@acme.test>"]},
        "headers": {"extra_headers": {"X-Order": "4711"}},
        "attachment": {"file": True},
        "tags": {"tags": ["receipt"]},
    }
    picture, order = {"inline image": {"picture": True}}, {"metadata": {"metadata": {"order": "17"}}}
    template = {
        "template": {"template_id": "welcome", "merge_global_data": {"name": "Ada"}, "subject": None, "body": ""}
    }
    more: dict[str, dict[str, Any]] = {
        "resend": picture | order | {"send_at": {"send_at": datetime.now(UTC) + timedelta(hours=1)}},
        "postmark": picture | order | template,
        "postal": {},
    }
    calls = {
        f"{backend}: {name}": lambda backend=backend, options=options: sends(backend, **options)  # type: ignore[misc]
        for backend in keys
        for name, options in (shared | more[backend]).items()
    }
    return tried(calls, lambda error: (error.status_code, str(error)))


def apprise(folder: Path) -> CallResults:
    """Use Apprise's `resend://`, which has Resend's host name in its code."""
    library = folder / "apprise"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(library), "apprise"]
    subprocess.run(install, check=True, capture_output=True)
    (library / "sitecustomize.py").write_text(
        "import socket\nasked = socket.getaddrinfo\n"
        f"own = lambda host: {AT!r} if host in {[*NAMES]} else host\n"
        "socket.getaddrinfo = lambda host, *more, **named: asked(own(host), *more, **named)\n"
    )
    url = f"resend://{KEY}:hello@acme.test/delivered@simulator.test"
    program = f"import apprise\none = apprise.Apprise()\none.add({url!r})\nassert one.notify('Hi', title='Hello')\n"
    env = os.environ | {"PYTHONPATH": str(library), "REQUESTS_CA_BUNDLE": str(folder / "ca.pem")}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    return {"Apprise, resend://": ("works", "") if done.returncode == 0 else ("wrong", done.stderr[-200:])}


def count(source: Path) -> dict[str, CallResults]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        install = [
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--no-save",
            "--prefix",
            str(folder),
        ]
        subprocess.run([*install, *PACKAGES], check=True, capture_output=True)
        with Running(source, folder) as service:
            base, ids = service.base, resend_ids(service.base)
            names = {"NAMES": ",".join(NAMES), "NAMES_AT": AT, "NODE_EXTRA_CA_CERTS": str(folder / "ca.pem")}
            at_host = {**names, "NODE_OPTIONS": f"--require {folder / 'names.cjs'}"}
            postmark = {"POSTMARK_URL": f"{base}/compat/postmark", "POSTMARK_KEY": KEY}
            resend_env = {"RESEND_BASE_URL": f"{base}/compat/resend", "RESEND_API_KEY": KEY}
            site.anymail()
            told = {
                "Postmark, Node": service.node("postmark_calls.mjs", json.dumps(_bounced(base)), **postmark),
                "postmarker (Python)": postmarker(service.port),
                "Resend, Node": service.node("resend_calls.mjs", json.dumps(ids), **resend_env),
                "Resend, Python": resend_python(ids),
                "Twilio, Node": service.node("twilio.cjs", BASE=f"{base}/compat/twilio"),
                "Twilio, Python": twilio_python(base),
                "django-anymail (Resend, Postmark, Postal)": anymail(base),
            }
            with in_front(service.port, folder):
                told["Postal's own, Node"] = service.node("postal.cjs", HOST="postal.acme.test", **at_host)
                told["Auth.js and Payload"] = service.node("hosts.mjs", **at_host)
                told["Apprise"] = apprise(folder)
            return told


def _bounced(base: str) -> dict[str, Any]:
    """Return a mail that bounced and its bounce, if the API can be asked for these."""
    headers, url = {"X-Postmark-Server-Token": KEY}, f"{base}/compat/postmark"
    sent = requests.post(
        f"{url}/email", json=MAIL | {"To": "bounced@simulator.test"}, headers=headers, timeout=30
    ).json()
    known = {"bounced": sent.get("MessageID", "eml_none"), "bounce": 1}
    with suppress(Exception):
        ask = f"{url}/bounces?count=1&offset=0&messageID={known['bounced']}"
        known["bounce"] = until(lambda: requests.get(ask, headers=headers, timeout=30).json()["Bounces"])[0]["ID"]
    return known


# -- the table ---------------------------------------------------------------------------------------------------------


def counts(told: CallResults) -> str:
    found = Counter(state for state, _ in told.values())
    return " / ".join(str(found[state]) for state in ("works", "refused", "wrong"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, metavar="DIR", help="A checkout to count beside this one.")
    options = parser.parse_args()
    now = count(ROOT)
    before = count(options.before) if options.before else {}
    lines = ["| client | calls | before | now |", "|---|---|---|---|"]
    for client, told in now.items():
        # If a program ended early, all of its calls count as wrong.
        then = {name: before.get(client, {}).get(name, ("wrong", "")) for name in told}
        lines.append(f"| {client} | {len(told)} | {counts(then) if before else '–'} | {counts(told)} |")
    print("\n".join(lines))
    for client, told in now.items():
        for name, (state, words) in told.items():
            if state != "works":
                print(f"{state}: {client}: {name}: {words}")
    head, _, rest = DOCS.read_text().partition(BEGIN)
    if before:
        DOCS.write_text(f"{head}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
