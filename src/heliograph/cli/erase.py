"""`heliograph erase`: removes an email address or phone number from all records of a team."""

import click

from heliograph.bootstrap import sqlite_path
from heliograph.cli.options import STORE_FLAGS, clear_mistakes, progress, with_settings, with_store
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.manage import erase as erasing
from heliograph.manage.teams import find_team
from heliograph.settings import Settings
from heliograph.storage.engine.sqlite import vacuum as vacuum_file
from heliograph.storage.erase import StillMoving
from heliograph.storage.store import Store

TOLD_EVERY = 100_000  # rows between two progress lines


@click.command(context_settings={"ignore_unknown_options": True})
@with_settings(*STORE_FLAGS)
@click.argument("address")
@click.option("--team", required=True, metavar="TEAM", help="The team whose records name it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--vacuum", is_flag=True, help="Then rewrite the SQLite file, so that freed pages keep no trace of it.")
def erase(settings: Settings, address: str, team: str, yes: bool, vacuum: bool) -> None:
    """Erase ADDRESS, an email address or a phone number, from all records of TEAM. It cannot be undone.

    Messages to it keep their id, state and price, but neither address, subject nor content; other recipients of them
    stay. It also goes from events, webhook deliveries, verifications, the request log, imports and the audit log, from
    the texts of templates and from names, where erased@erased.invalid takes its place. Who signs in with it is no
    longer a member, and has no account if no other team needs it. Logs never have addresses. A keyed hash of an email
    address stays on the suppression list: later sends to it are still suppressed.

    Refused while something to the address has not ended, or to the team's last owner. May be run again at any time.
    The service may run.

    \b
    heliograph erase ada@example.com --team team_acme
    heliograph erase +4915112345678 --team team_acme --yes
    """
    path = sqlite_path(settings)
    if vacuum and path is None:
        raise click.UsageError("--vacuum is for SQLite; PostgreSQL does it by itself (autovacuum).")
    if not yes and click.prompt("It cannot be undone. Type the address again to erase it") != address:
        raise click.ClickException("this is another address; nothing was erased")
    count = with_store(settings, "Erasing", lambda store: _erase(store, team, address), seals=True)
    if vacuum and path is not None:
        with progress("Rewriting the file"), clear_mistakes(settings):
            vacuum_file(path)
    click.echo(f"Erased from {team}. Messages that named it: {count}")


async def _erase(store: Store, team: str, address: str) -> int:
    try:
        return await erasing.erase(store, COMMAND_LINE, find_team(store.setup.current, team), address, told)
    except StillMoving as error:
        raise click.ClickException(f"{error} Run it again later.") from None


def told(what: str, count: int) -> None:
    if count % TOLD_EVERY == 0:
        click.echo(f"looked through {count} {what}", err=True)
