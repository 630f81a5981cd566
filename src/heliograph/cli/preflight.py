"""`heliograph preflight`: checks a machine and its network before installation."""

import click

from heliograph.cli.checks import mail
from heliograph.cli.checks.findings import Site, tell
from heliograph.cli.checks.table import listed, look
from heliograph.cli.options import AS_JSON, SERVE_FLAGS, with_settings
from heliograph.runtime.resolver import NameServers
from heliograph.settings import Settings

# SMTP relays of mail providers, on ports that networks seldom block.
RELAYS = ("smtp.postmarkapp.com:2525", "email-smtp.eu-west-1.amazonaws.com:587", "smtp.mailgun.org:465")


@click.command(epilog=listed("preflight"))
@with_settings(*SERVE_FLAGS)
@click.option(
    "--probe", default="gmail.com", show_default=True, metavar="DOMAIN", help="Whose mail exchangers to greet."
)
@click.option("--relay", "relays", multiple=True, metavar="HOST:PORT", help="A relay to try when port 25 is blocked.")
@click.option("--smtp-port", default=25, hidden=True)
@AS_JSON
@click.pass_context
def preflight(
    context: click.Context, settings: Settings, probe: str, relays: tuple[str, ...], smtp_port: int, as_json: bool
) -> None:
    """Check machine, network and database before anything is set up, and say how to fix what is missing.

    Sends no mail and changes nothing: it writes and removes one small file where the data will be, and one where the
    attachments will be, and greets a mail server. Exit code 1 when something must be fixed.

    \b
    heliograph preflight --public-url https://mail.example.com
    heliograph preflight --public-url https://mail.example.com --database postgresql://heliograph@db/heliograph --json
    """
    resolver = NameServers(settings.resolver, mail.PROBE_S)
    tell(context, look("preflight", Site(settings, resolver, probe, smtp_port, relays or RELAYS)), as_json)
