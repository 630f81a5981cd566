"""`heliograph migrate`: the database brought to the schema of this version."""

import asyncio

import click

from heliograph import opening
from heliograph.cli.options import STORE_FLAGS, clear_mistakes, progress, shown, with_settings
from heliograph.settings import Settings


@click.command()
@with_settings(*STORE_FLAGS)
def migrate(settings: Settings) -> None:
    """Bring the database to the schema of this version.

    Every start does the same; this command does it ahead of time, for example while an old version still runs.

    \b
    heliograph migrate --database postgresql://heliograph@db/heliograph
    """
    with progress("Migrating"), clear_mistakes(settings):
        applied = asyncio.run(opening.migrate(settings))
    for number in applied:
        click.echo(f"schema {number} applied")
    click.echo(f"{shown(settings.database)} is up to date")
