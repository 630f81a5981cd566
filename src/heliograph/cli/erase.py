"""`heliograph erase`: removes an email address or phone number from all records of a team."""

import click

from heliograph.bootstrap import sqlite_path
from heliograph.cli.options import STORE_FLAGS, progress, readable_errors, with_settings, with_store
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.manage import erase as erasing
from heliograph.manage.teams import get_team
from heliograph.settings import Settings
from heliograph.storage.engine.sqlite import vacuum as vacuum_file
from heliograph.storage.erase import ErasureBlocked
from heliograph.storage.store import Store

PROGRESS_EVERY = 100_000  # rows between two lines of progress


@click.command(context_settings={"ignore_unknown_options": True})
@with_settings(*STORE_FLAGS)
@click.argument("address")
@click.option("--team", required=True, metavar="TEAM", help="The team whose records are erased.")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@click.option("--vacuum", is_flag=True, help="Then rewrite the SQLite file, so that no traces remain in free pages.")
def erase(settings: Settings, address: str, team: str, yes: bool, vacuum: bool) -> None:
    """Erase ADDRESS, an email address or a phone number, from all records of TEAM. This cannot be undone.

    Messages to the address keep their id, state and price, but not the address, subject or content; their other
    recipients are kept. The address is also removed from events, webhook deliveries, verifications, the request log,
    imports and the audit log. In template texts and names it is replaced by erased@erased.invalid. A user who signs in
    with the address is removed from the team, and the account is deleted if it belongs to no other team. Logs never
    contain addresses. A keyed hash of an email address stays on the suppression list, so that it remains suppressed.

    Refused while a message to the address is in progress, and for the team's last owner. The command can be repeated,
    and the service can keep running.

    \b
    heliograph erase ada@example.com --team team_acme
    heliograph erase +4915112345678 --team team_acme --yes
    """
    path = sqlite_path(settings)
    if vacuum and path is None:
        raise click.UsageError("--vacuum is for SQLite only; PostgreSQL vacuums automatically (autovacuum).")
    if not yes and click.prompt("This cannot be undone. Type the address again to confirm") != address:
        raise click.ClickException("the addresses do not match; nothing was erased")
    count = with_store(settings, "Erasing", lambda store: _erase(store, team, address), checks_secret=True)
    if vacuum and path is not None:
        with progress("Rewriting the file"), readable_errors(settings):
            vacuum_file(path)
    click.echo(f"Erased from {team}. Messages changed: {count}")


async def _erase(store: Store, team: str, address: str) -> int:
    try:
        return await erasing.erase(store, COMMAND_LINE, get_team(store.setup.current, team), address, print_progress)
    except ErasureBlocked as error:
        raise click.ClickException(f"{error} Run it again later.") from None


def print_progress(kind: str, count: int) -> None:
    if count % PROGRESS_EVERY == 0:
        click.echo(f"searched {count} {kind}", err=True)
