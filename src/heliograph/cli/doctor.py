"""`heliograph doctor`: checks the service's dependencies without changing anything and prints a fix per problem."""

import click

from heliograph.cli.checks import mail
from heliograph.cli.checks.findings import Finding, Site, print_findings
from heliograph.cli.checks.machine import get_instance_name
from heliograph.cli.checks.table import help_epilog, run_checks
from heliograph.cli.options import BASIC_FLAGS, JSON_OPTION, with_settings
from heliograph.runtime.resolver import Resolver
from heliograph.settings import Settings


@click.command(epilog=help_epilog("doctor"))
@with_settings(*BASIC_FLAGS)
@click.option("--ready", is_flag=True, help="Only check whether the service on --listen is ready.")
@JSON_OPTION
@click.pass_context
def doctor(context: click.Context, settings: Settings, ready: bool, as_json: bool) -> None:
    """Check everything the service depends on, and print how to fix problems.

    Changes nothing and can run while the service runs. Exit code 1 if a problem must be fixed.

    \b
    heliograph doctor
    heliograph doctor --database postgresql://heliograph@db/heliograph --json
    heliograph doctor --ready
    """
    site = Site(settings, Resolver(settings.resolver, mail.TIMEOUT_S))
    print_findings(context, [is_ready(settings)] if ready else run_checks("doctor", site), as_json)


def is_ready(settings: Settings) -> Finding:
    """Return whether /readyz of the running service succeeds, for container health checks."""
    if get_instance_name(settings, "/readyz") is not None:
        return Finding("ready", "ok", f"the service on {settings.listen} is ready")
    return Finding("ready", "FAIL", f"the service on {settings.listen} is not ready", "see its log")
