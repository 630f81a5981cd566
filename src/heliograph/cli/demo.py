"""`heliograph demo`: runs the service with two sample teams and prints example requests."""

import os
import shlex
import shutil
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import click
import msgspec

from heliograph.api.mcp import PATH
from heliograph.bootstrap import make_secrets
from heliograph.cli.apply import apply_file
from heliograph.cli.options import BASIC_FLAGS, readable_errors, with_settings, with_store
from heliograph.cli.serve import run
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.setup.keys import make_token
from heliograph.domain.setup.setup_file import SetupFile, parse_setup_file
from heliograph.manage.people import NewPerson, make_demo_link
from heliograph.runtime import logs
from heliograph.server import CannotListen
from heliograph.settings import Settings, host_and_port
from heliograph.storage.store import Store
from heliograph.texts.dashboard_links import sign_in_link_page

DEMO_FOLDER = Path("heliograph-demo")
BOUNCE_ADDRESS, SUBMISSION_ADDRESS = ("127.0.0.1", 8725), ("127.0.0.1", 8587)
LOOPBACK = ("127.0.0.0/8", "::1/128")
DEMO_EMAIL = "demo@heliograph.test"
ACCOUNT = "AC" + 32 * "0"  # any value that looks like a Twilio account SID
TEAMS = ("team_demo", "team_demo_sandbox")


@click.command()
@with_settings(*BASIC_FLAGS, database="heliograph.db in the --data folder", data=str(DEMO_FOLDER))
@click.option("--examples", is_flag=True, help="Print more example requests for a running demo, and start nothing.")
def demo(settings: Settings, examples: bool) -> None:
    """Run the service with a sandbox team and a live team, and print keys and a curl command for each channel.

    Nothing leaves this machine: the simulator serves every channel. Data is stored in ./heliograph-demo unless --data
    or --database is given; delete that folder to start over.

    \b
    heliograph demo
    heliograph demo --listen 127.0.0.1:8800 --data /tmp/demo
    heliograph demo --examples
    """
    settings = in_demo_folder(settings)
    with readable_errors(settings):
        secrets = make_secrets(settings)
        tokens = {name: make_token(secrets.demo_bytes(name)) for name in ("LIVE", "SANDBOX", "AGENT")}
    if examples:
        click.echo("\n".join(with_titles(example_requests(settings.base_url, tokens["LIVE"], tokens["SANDBOX"]))))
        return
    settings = with_mcp(with_loopback(with_mail_listeners(settings)))
    port_note = smtp_port_note(settings)
    file = with_example_templates(parse_setup_file(_read_packed("demo.toml"), tokens, name="demo.toml"))

    async def prepare(store: Store) -> str:
        await apply_file(store, settings, file)
        return await make_demo_link(store, COMMAND_LINE, NewPerson(email=DEMO_EMAIL, name="Demo"), TEAMS)

    link = with_store(settings, "Preparing the demo", prepare, checks_secret=True, allows_second_database=True)

    async def print_welcome(settings: Settings, _: Store) -> None:
        smtp_addresses = [*settings.submission_listen, *settings.submission_tls_listen]
        dashboard = settings.base_url + sign_in_link_page(link)
        lines = [
            *welcome_lines(settings.base_url, dashboard, tokens["LIVE"], tokens["SANDBOX"]),
            *client_credentials(
                settings.base_url, tokens["SANDBOX"], [host_and_port(*address) for address in smtp_addresses[:1]]
            ),
            *port_note,
            agent_line(settings.base_url, tokens["AGENT"]) if settings.mcp else "",
            f"More requests: {examples_command(settings)}",
            f"Stop with Ctrl-C. Dashboard: {dashboard}",
        ]
        click.echo("\n".join(lines))
        logs.log_only_warnings()  # the link stays the last line

    with suggest_other_port():
        run(settings, "all", print_welcome, test_token=tokens["SANDBOX"])


@contextmanager
def suggest_other_port() -> Iterator[None]:
    """If the port is in use, show a command with another port in the error; only for a demo started by `make run`."""
    try:
        yield
    except click.ClickException as error:
        if isinstance(error.__cause__, CannotListen) and "MAKELEVEL" in os.environ:
            text = f"{error.message} For example: HELIOGRAPH_LISTEN=127.0.0.1:8701 make run"
            raise click.ClickException(text) from error.__cause__
        raise


def with_example_templates(file: SetupFile) -> SetupFile:
    """Return the setup file with the templates of examples/templates, each with example values, in the live team."""
    [shop] = parse_setup_file(_read_packed("shop.toml").replace("_shop", "_demo"), {}, name="shop.toml").teams
    values = msgspec.json.decode(_read_packed("shop.json").replace("_shop", "_demo"))
    email_templates = [template | {"examples": _examples(values[template["id"]])} for template in shop["templates"]]
    live_team, *others = file.teams
    live_team = live_team | {"layouts": shop["layouts"], "templates": live_team["templates"] + email_templates}
    return msgspec.structs.replace(file, teams=[live_team, *others])


def _examples(values: dict[str, Any]) -> dict[str, str]:
    return {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode() for name, value in values.items()
    }


def _read_packed(name: str) -> str:
    return resources.files("heliograph.cli").joinpath(name).read_text("utf-8")


def in_demo_folder(settings: Settings) -> Settings:
    """Return settings that keep data and database in the demo's folder, unless they are configured."""
    defaults = Settings()
    data = DEMO_FOLDER if settings.data == defaults.data else settings.data
    demo_database = f"sqlite:///{data / 'heliograph.db'}"
    database = demo_database if settings.database == defaults.database else settings.database
    return msgspec.structs.replace(settings, data=data, database=database)


def with_mail_listeners(settings: Settings) -> Settings:
    """Return settings with the bounce listener and SMTP submission, unless they are configured.

    If their default port is taken, there is no bounce listener, and submission uses any free port.
    """
    if "bounce_listen" not in settings.sources and _is_free(*BOUNCE_ADDRESS):
        settings = msgspec.structs.replace(settings, bounce_listen=BOUNCE_ADDRESS)
    if "submission_listen" not in settings.sources and not settings.submission():
        address = SUBMISSION_ADDRESS if _is_free(*SUBMISSION_ADDRESS) else (SUBMISSION_ADDRESS[0], 0)
        settings = msgspec.structs.replace(settings, submission_listen=(address,))
    return settings


def smtp_port_note(settings: Settings) -> list[str]:
    """Return a line for the screen if SMTP submission uses any free port because its default port is taken."""
    if "submission_listen" in settings.sources or (SUBMISSION_ADDRESS[0], 0) not in settings.submission_listen:
        return []
    port = SUBMISSION_ADDRESS[1]
    return [f"(Port {port} is in use, so SMTP has another port. HELIOGRAPH_SUBMISSION_LISTEN=host:port sets it.)"]


def with_loopback(settings: Settings) -> Settings:
    """Return settings that allow webhooks to loopback addresses, unless configured: a demo's receivers are local."""
    if "webhook_allow_private" in settings.sources:
        return settings
    return msgspec.structs.replace(settings, webhook_allow_private=LOOPBACK)


def with_mcp(settings: Settings) -> Settings:
    """Return settings with the MCP endpoint, unless it is configured."""
    return settings if "mcp" in settings.sources else msgspec.structs.replace(settings, mcp=True)


def _is_free(host: str, port: int) -> bool:
    """Return whether the port is free; it may be taken by another demo."""
    try:
        socket.create_server((host, port)).close()
    except OSError:
        return False
    return True


PHONE = "+15005550006"
EMAIL = {"to": "delivered@simulator.test"}
DIRECT = EMAIL | {"from": "hello@demo.test", "subject": "Hello", "text": "It works."}
SMS, WHATSAPP = (
    {"to": PHONE, "template_id": f"tpl_demo_{channel}", "variables": {"parcel": "4711"}}
    for channel in ("sms", "whatsapp")
)


def welcome_lines(base: str, dashboard: str, live: str, sandbox: str) -> list[str]:
    """Return the text printed at the start: addresses, keys, and a request per channel. It fits on one screen."""
    requests = {
        "email": curl_command(base, live, "/v1/emails", DIRECT),
        "sms": curl_command(base, live, "/v1/sms", SMS),
        "whatsapp": curl_command(base, live, "/v1/whatsapp", WHATSAPP),
        "verify": curl_command(base, live, "/v1/verify", {"to": PHONE}),
    }
    return [
        "",
        f"Dashboard    {dashboard}",
        f"API          {base}/v1",
        f"Docs         {base}/docs",
        f"Live key     {live}",
        f"Sandbox key  {sandbox}",
        "",
        *with_titles(requests),
    ]


def with_titles(requests: dict[str, str]) -> list[str]:
    return [line for title, request in requests.items() for line in (f"# {title}", request)]


def examples_command(settings: Settings) -> str:
    """Return the shell command that prints more example requests for a demo with these settings."""
    program = Path(sys.argv[0])
    name = "heliograph" if shutil.which("heliograph") or program.name != "heliograph" else os.path.relpath(program)
    defaults = Settings()
    flags = [f"--listen {host_and_port(settings.host, settings.port)}"] if settings.port != defaults.port else []
    flags += [f"--data {shlex.quote(str(settings.data))}"] if settings.data != DEMO_FOLDER else []
    return " ".join([name, "demo --examples", *flags])


def example_requests(base: str, live: str, sandbox: str) -> dict[str, str]:
    """Return title → example request to a running demo. Some requests depend on those before them."""
    template = EMAIL | {
        "from": "hello@demo.test",
        "template_id": "tpl_demo_welcome",
        "variables": {"name": "Ada"},
    }
    receipt = template | {
        "template_id": "tpl_demo_receipt",
        "locale": "de",
        "variables": msgspec.json.decode(_read_packed("shop.json"))["tpl_shop_receipt"],
    }
    answered_mail = DIRECT | {"to": "reply@simulator.test", "replies": True}
    start = curl_command(base, live, "/v1/verify", {"to": PHONE})
    verification = f"$({start} | grep -o 'vrf_[0-9A-Z]*' | head -n 1)"
    return {
        "email": curl_command(base, live, "/v1/emails", DIRECT),
        "email, by template": curl_command(base, live, "/v1/emails", template),
        "email, a receipt with line items, in German": curl_command(base, live, "/v1/emails", receipt),
        "sms": curl_command(base, live, "/v1/sms", SMS),
        "whatsapp": curl_command(base, live, "/v1/whatsapp", WHATSAPP),
        "verify, start": start,
        "verify, start and check": curl_command(base, live, f"/v1/verify/{verification}/check", {"code": "000000"}),
        "email, in the sandbox": curl_command(
            base, sandbox, "/v1/emails", EMAIL | {"subject": "Hello", "text": "From the sandbox."}
        ),
        "test inbox of the sandbox team, which also shows one-time codes (verify.inbox = true, default: false)": (
            f"curl -sS '{base}/v1/inbox?to={EMAIL['to']}&wait=10' -H 'Authorization: Bearer {sandbox}'"
        ),
        "email, answered by its recipient": curl_command(base, live, "/v1/emails", answered_mail),
        "email, delayed": curl_command(base, live, "/v1/emails", DIRECT | {"to": "delayed@simulator.test"}),
        "sms, answered with a text": curl_command(base, live, "/v1/sms", SMS | {"to": "+15005550011"}),
        "sms, answered with STOP (the next one is refused)": curl_command(
            base, live, "/v1/sms", SMS | {"to": "+15005550010"}
        ),
        "events: bounces and replies": f"curl -sS '{base}/v1/events?limit=100' -H 'Authorization: Bearer {live}'",
        "status of the emails": f"curl -sS '{base}/v1/emails?limit=2' -H 'Authorization: Bearer {live}'",
    }


def client_credentials(base: str, token: str, smtp_addresses: Sequence[str]) -> list[str]:
    """Return lines with the URLs and credentials for SMTP and for clients of our compatibility APIs.

    Messages sent by these clients are captured in the sandbox team's test inbox.
    """
    compat = f"{base}/compat"
    return [
        "",
        "# for clients of other services; their messages go to the sandbox team's test inbox",
        f"Resend {compat}/resend {token}",
        f"Twilio {compat}/twilio {ACCOUNT} {token}",
        f"Postmark {compat}/postmark {token}",
        f"Postal {compat}/postal {token}",
        *(f"SMTP {address} heliograph {token}" for address in smtp_addresses),
    ]


def agent_line(base: str, token: str) -> str:
    """Return a line with the address of the MCP endpoint and a key for it.

    The key can send only to simulated recipients, at most 100 messages a day.
    """
    return f"MCP {base}{PATH} {token}"


def curl_command(base: str, token: str, path: str, body: dict[str, Any]) -> str:
    return (
        f"curl -sS {base}{path} -H 'Authorization: Bearer {token}' "
        f"-H 'Content-Type: application/json' -d '{msgspec.json.encode(body).decode()}'"
    )
