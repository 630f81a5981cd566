"""`heliograph preflight`: checks a machine and its network before installation."""

import click

from heliograph.cli.checks import mail
from heliograph.cli.checks.findings import Site, print_findings
from heliograph.cli.checks.table import help_epilog, run_checks
from heliograph.cli.options import JSON_OPTION, SERVE_FLAGS, with_settings
from heliograph.runtime.resolver import Resolver
from heliograph.settings import Settings

# SMTP relays of mail providers, on ports that networks rarely block
RELAYS = ("smtp.postmarkapp.com:2525", "email-smtp.eu-west-1.amazonaws.com:587", "smtp.mailgun.org:465")


@click.command(epilog=help_epilog("preflight"))
@with_settings(*SERVE_FLAGS)
@click.option(
    "--probe",
    default="gmail.com",
    show_default=True,
    metavar="DOMAIN",
    help="Domain whose mail exchangers are contacted.",
)
@click.option("--relay", "relays", multiple=True, metavar="HOST:PORT", help="Relay to try if port 25 is blocked.")
@click.option("--smtp-port", default=25, hidden=True)
@JSON_OPTION
@click.pass_context
def preflight(
    context: click.Context, settings: Settings, probe: str, relays: tuple[str, ...], smtp_port: int, as_json: bool
) -> None:
    """Check machine, network and database before installation, and print how to fix problems.

    Sends no mail and changes nothing: it writes and deletes a small file where the data will be and one where the
    attachments will be, and connects to a mail server. Exit code 1 if a problem must be fixed.

    \b
    heliograph preflight --public-url https://mail.example.com
    heliograph preflight --public-url https://mail.example.com --database postgresql://heliograph@db/heliograph --json
    """
    resolver = Resolver(settings.resolver, mail.TIMEOUT_S)
    print_findings(
        context, run_checks("preflight", Site(settings, resolver, probe, smtp_port, relays or RELAYS)), as_json
    )
