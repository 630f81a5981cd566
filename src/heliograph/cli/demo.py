"""`heliograph demo`: runs the service with two sample teams and prints example requests."""

import socket
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import click
import msgspec

from heliograph.bootstrap import make_secrets
from heliograph.cli.apply import apply_file
from heliograph.cli.options import BASIC_FLAGS, readable_errors, with_settings, with_store
from heliograph.cli.serve import run
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.setup.keys import make_token
from heliograph.domain.setup.setup_file import SetupFile, parse_setup_file
from heliograph.manage.people import NewPerson, make_demo_link
from heliograph.settings import Settings, host_and_port
from heliograph.storage.store import Store
from heliograph.texts.dashboard_links import sign_in_link_page

DEMO_FOLDER = Path("heliograph-demo")
BOUNCE_ADDRESS, SUBMISSION_ADDRESS = ("127.0.0.1", 8725), ("127.0.0.1", 8587)
LOOPBACK = ("127.0.0.0/8", "::1/128")
DEMO_EMAIL = "demo@heliograph.test"
ACCOUNT = "AC" + 32 * "0"  # any value in the format of a Twilio account SID
TEAMS = ("team_demo", "team_demo_sandbox")


@click.command()
@with_settings(*BASIC_FLAGS, database="heliograph.db in the --data folder", data=str(DEMO_FOLDER))
def demo(settings: Settings) -> None:
    """Run the service with a sandbox team and a live team, and print keys and a curl command for each channel.

    Nothing leaves this machine: the simulator serves every channel. Data is stored in ./heliograph-demo unless --data
    or --database is given; delete that folder to start over.

    \b
    heliograph demo
    heliograph demo --listen 127.0.0.1:8800 --data /tmp/demo
    """
    settings = with_loopback(with_mail_listeners(in_demo_folder(settings)))
    with readable_errors(settings):
        secrets = make_secrets(settings)
        tokens = {name: make_token(secrets.demo(name)) for name in ("LIVE", "SANDBOX")}
    file = with_example_templates(parse_setup_file(_read_packed("demo.toml"), tokens, name="demo.toml"))

    async def prepare(store: Store) -> str:
        await apply_file(store, settings, file)
        return await make_demo_link(store, COMMAND_LINE, NewPerson(email=DEMO_EMAIL, name="Demo"), TEAMS)

    link = with_store(settings, "Preparing the demo", prepare, checks_secret=True, allows_second_database=True)

    async def ready(settings: Settings, _: Store) -> None:
        lines = welcome(settings.base_url, tokens["LIVE"], tokens["SANDBOX"])
        dashboard_lines = [f"Dashboard    {settings.base_url}{sign_in_link_page(link)}"]
        smtp_addresses = [*settings.submission_listen, *settings.submission_tls_listen]
        client_lines = client_credentials(
            settings.base_url, tokens["SANDBOX"], [host_and_port(*address) for address in smtp_addresses[:1]]
        )
        click.echo("\n".join([*lines[:1], *dashboard_lines, *lines[1:-2], *client_lines, *lines[-2:]]))

    run(settings, "all", ready, test_token=tokens["SANDBOX"])


def with_example_templates(file: SetupFile) -> SetupFile:
    """Add the email templates of examples/templates to the live team, with example values for previews and tests."""
    [shop] = parse_setup_file(_read_packed("shop.toml").replace("_shop", "_demo"), {}, name="shop.toml").teams
    values = msgspec.json.decode(_read_packed("shop.json").replace("_shop", "_demo"))
    email_templates = [template | {"examples": _examples(values[template["id"]])} for template in shop["templates"]]
    live, *others = file.teams
    live = live | {"layouts": shop["layouts"], "templates": live["templates"] + email_templates}
    return msgspec.structs.replace(file, teams=[live, *others])


def _examples(values: dict[str, Any]) -> dict[str, str]:
    return {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode() for name, value in values.items()
    }


def _read_packed(name: str) -> str:
    return resources.files("heliograph.cli").joinpath(name).read_text("utf-8")


def in_demo_folder(settings: Settings) -> Settings:
    """Replace default data and database paths by the demo's folder, to keep its data apart from a real service."""
    defaults = Settings()
    data = DEMO_FOLDER if settings.data == defaults.data else settings.data
    demo_database = f"sqlite:///{data / 'heliograph.db'}"
    database = demo_database if settings.database == defaults.database else settings.database
    return msgspec.structs.replace(settings, data=data, database=database)


def with_mail_listeners(settings: Settings) -> Settings:
    """Enable the bounce listener and SMTP submission unless configured otherwise.

    Bounces need their port to be free; submission falls back to any free port.
    """
    if "bounce_listen" not in settings.sources and _is_free(*BOUNCE_ADDRESS):
        settings = msgspec.structs.replace(settings, bounce_listen=BOUNCE_ADDRESS)
    if "submission_listen" not in settings.sources and not settings.submission():
        address = SUBMISSION_ADDRESS if _is_free(*SUBMISSION_ADDRESS) else (SUBMISSION_ADDRESS[0], 0)
        settings = msgspec.structs.replace(settings, submission_listen=(address,))
    return settings


def with_loopback(settings: Settings) -> Settings:
    """Allow webhooks to loopback addresses unless configured otherwise; demo receivers run locally."""
    if "webhook_allow_private" in settings.sources:
        return settings
    return msgspec.structs.replace(settings, webhook_allow_private=LOOPBACK)


def _is_free(host: str, port: int) -> bool:
    """Return whether a port is free; a second demo then runs without a bounce listener instead of failing."""
    try:
        socket.create_server((host, port)).close()
    except OSError:
        return False
    return True


def welcome(base: str, live: str, sandbox: str) -> list[str]:
    phone = "+15005550006"
    email = {"to": "delivered@simulator.test"}
    direct = email | {"from": "hello@demo.test", "subject": "Hello", "text": "It works."}
    template = email | {
        "from": "hello@demo.test",
        "template_id": "tpl_demo_welcome",
        "variables": {"name": "Ada"},
    }
    receipt = template | {
        "template_id": "tpl_demo_receipt",
        "locale": "de",
        "variables": msgspec.json.decode(_read_packed("shop.json"))["tpl_shop_receipt"],
    }
    sms, whatsapp = (
        {"to": phone, "template_id": f"tpl_demo_{channel}", "variables": {"parcel": "4711"}}
        for channel in ("sms", "whatsapp")
    )
    answered = direct | {"to": "reply@simulator.test", "replies": True}
    start = curl(base, live, "/v1/verify", {"to": phone})
    verification = f"$({start} | grep -o 'vrf_[0-9A-Z]*' | head -n 1)"
    lines = {
        "email": curl(base, live, "/v1/emails", direct),
        "email, by template": curl(base, live, "/v1/emails", template),
        "email, a receipt with line items, in German": curl(base, live, "/v1/emails", receipt),
        "sms": curl(base, live, "/v1/sms", sms),
        "whatsapp": curl(base, live, "/v1/whatsapp", whatsapp),
        "verify, start": start,
        "verify, start and check": curl(base, live, f"/v1/verify/{verification}/check", {"code": "000000"}),
        "email, in the sandbox": curl(
            base, sandbox, "/v1/emails", email | {"subject": "Hello", "text": "From the sandbox."}
        ),
        "test inbox of the sandbox team": (
            f"curl -sS '{base}/v1/inbox?to={email['to']}&wait=10' -H 'Authorization: Bearer {sandbox}'"
        ),
        "email, answered by its recipient": curl(base, live, "/v1/emails", answered),
        "email, delayed": curl(base, live, "/v1/emails", direct | {"to": "delayed@simulator.test"}),
        "sms, answered with a text": curl(base, live, "/v1/sms", sms | {"to": "+15005550011"}),
        "sms, answered with STOP (the next one is refused)": curl(base, live, "/v1/sms", sms | {"to": "+15005550010"}),
        "events: bounces and replies": f"curl -sS '{base}/v1/events?limit=100' -H 'Authorization: Bearer {live}'",
        "status of the emails": f"curl -sS '{base}/v1/emails?limit=2' -H 'Authorization: Bearer {live}'",
    }
    return [
        "",
        f"API          {base}/v1",
        f"Docs         {base}/docs",
        f"Live key     {live}",
        f"Sandbox key  {sandbox}",
        "             verify.inbox = true for this team (default: false): GET /v1/inbox shows one-time codes",
        *(f"\n# {name}\n{line}" for name, line in lines.items()),
        "",
        "Stop with Ctrl-C.",
    ]


def client_credentials(base: str, token: str, smtp_addresses: Sequence[str]) -> list[str]:
    """Return the lines with URLs and credentials for clients of other services' APIs and for SMTP.

    Messages that these clients send are captured in the sandbox team's test inbox.
    """
    compat = f"{base}/compat"
    return [
        "",
        "# for clients of other services: their messages are captured in the sandbox team's test inbox",
        f"Resend {compat}/resend {token}",
        f"Twilio {compat}/twilio {ACCOUNT} {token}",
        f"Postmark {compat}/postmark {token}",
        f"Postal {compat}/postal {token}",
        *(f"SMTP {address} heliograph {token}" for address in smtp_addresses),
    ]


def curl(base: str, token: str, path: str, body: dict[str, Any]) -> str:
    return (
        f"curl -sS {base}{path} -H 'Authorization: Bearer {token}' "
        f"-H 'Content-Type: application/json' -d '{msgspec.json.encode(body).decode()}'"
    )
