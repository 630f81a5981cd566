"""`heliograph export`: prints all data of a team about an email address or phone number."""

import os
from pathlib import Path

import click
import msgspec

from heliograph.cli.erase import told
from heliograph.cli.options import STORE_FLAGS, with_settings, with_store
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.manage import export as exporting
from heliograph.manage.teams import find_team
from heliograph.settings import Settings
from heliograph.storage.store import Store


@click.command(context_settings={"ignore_unknown_options": True})
@with_settings(*STORE_FLAGS)
@click.argument("address")
@click.option("--team", required=True, metavar="TEAM", help="The team whose records name it.")
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write it there, readable by you alone."
)
def export(settings: Settings, address: str, team: str, output: Path | None) -> None:
    """Write down all that the records of TEAM hold about ADDRESS, an email address or a phone number, as JSON.

    Messages that name it with their content while it is kept and this person's timeline, verifications (never codes),
    suppression, events, webhook deliveries, imports, refused requests and entries of the audit log: what `heliograph
    erase` would erase. Other people's addresses are left out.

    The audit log notes that it was exported, with a hash of the address. The service may run.

    \b
    heliograph export ada@example.com --team team_acme --output ada.json
    heliograph export +4915112345678 --team team_acme
    """
    if output and output.exists():
        raise click.UsageError(f"{output} is there already: choose another file.")
    text = with_store(settings, "Looking", lambda store: _export(store, team, address), seals=True)
    if output is None:
        click.echo(text)
        return
    try:
        with open(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text + b"\n")
    except OSError as error:
        raise click.ClickException(f"{output}: {error.strerror}.") from None


async def _export(store: Store, team: str, address: str) -> bytes:
    held = await exporting.export(store, COMMAND_LINE, find_team(store.setup.current, team), address, told)
    return msgspec.json.format(msgspec.json.encode(held))
