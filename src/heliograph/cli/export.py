"""`heliograph export`: prints all data of a team about an email address or phone number."""

import os
from pathlib import Path

import click
import msgspec

from heliograph.cli.erase import print_progress
from heliograph.cli.options import STORE_FLAGS, with_settings, with_store
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.manage import export as exporting
from heliograph.manage.teams import get_team
from heliograph.settings import Settings
from heliograph.storage.store import Store


@click.command(context_settings={"ignore_unknown_options": True})
@with_settings(*STORE_FLAGS)
@click.argument("address")
@click.option("--team", required=True, metavar="TEAM", help="The team whose records are exported.")
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write to this file, readable only by you."
)
def export(settings: Settings, address: str, team: str, output: Path | None) -> None:
    """Export all data of TEAM about ADDRESS, an email address or a phone number, as JSON.

    Includes messages (with content while it is stored, and the timeline of this recipient), verifications (never
    codes), suppression, events, webhook deliveries, imports, refused requests and audit log entries: everything that
    `heliograph erase` would erase. Addresses of other people are omitted.

    The export is recorded in the audit log with a hash of the address. The service can keep running.

    \b
    heliograph export ada@example.com --team team_acme --output ada.json
    heliograph export +4915112345678 --team team_acme
    """
    if output and output.exists():
        raise click.UsageError(f"{output} already exists: choose another file.")
    text = with_store(settings, "Exporting", lambda store: _export(store, team, address), checks_secret=True)
    if output is None:
        click.echo(text)
        return
    try:
        with open(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text + b"\n")
    except OSError as error:
        raise click.ClickException(f"{output}: {error.strerror}.") from None


async def _export(store: Store, team: str, address: str) -> bytes:
    data = await exporting.export(store, COMMAND_LINE, get_team(store.setup.current, team), address, print_progress)
    return msgspec.json.format(msgspec.json.encode(data))
