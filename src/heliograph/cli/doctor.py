"""`heliograph doctor`: checks the service's dependencies without changing anything and prints a fix per problem."""

import click

from heliograph.cli.checks import mail
from heliograph.cli.checks.findings import Finding, Site, tell
from heliograph.cli.checks.machine import asked
from heliograph.cli.checks.table import listed, look
from heliograph.cli.options import AS_JSON, FLAGS, with_settings
from heliograph.runtime.resolver import NameServers
from heliograph.settings import Settings


@click.command(epilog=listed("doctor"))
@with_settings(*FLAGS)
@click.option("--ready", is_flag=True, help="Only ask the service on --listen whether it is ready.")
@AS_JSON
@click.pass_context
def doctor(context: click.Context, settings: Settings, ready: bool, as_json: bool) -> None:
    """Check what the service depends on, and say how to fix what is wrong.

    Changes nothing and can run beside the service. Exit code 1 when something must be fixed.

    \b
    heliograph doctor
    heliograph doctor --database postgresql://heliograph@db/heliograph --json
    heliograph doctor --ready
    """
    site = Site(settings, NameServers(settings.resolver, mail.PROBE_S))
    tell(context, [is_ready(settings)] if ready else look("doctor", site), as_json)


def is_ready(settings: Settings) -> Finding:
    """Return whether /readyz of the running service succeeds, for container health checks."""
    if asked(settings, "/readyz") is not None:
        return Finding("ready", "ok", f"the service on {settings.listen} takes requests")
    return Finding("ready", "FAIL", f"the service on {settings.listen} takes no requests", "its log says why")
