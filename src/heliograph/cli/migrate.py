"""`heliograph migrate`: migrates the database to the schema of this version."""

import asyncio

import click

from heliograph import bootstrap
from heliograph.cli.options import STORE_FLAGS, clear_mistakes, progress, refuse_second, shown, with_settings
from heliograph.settings import Settings
from heliograph.storage.engine.migration_plan import Step


@click.command()
@with_settings(*STORE_FLAGS)
@click.option("--plan", is_flag=True, help="Say what would be done, and about how long it takes; change nothing.")
def migrate(settings: Settings, plan: bool) -> None:
    """Bring the database to the schema of this version.

    Every start does the same; this command does it ahead of time, for example while an old version still runs.

    \b
    heliograph migrate --plan
    heliograph migrate --database postgresql://heliograph@db/heliograph
    """
    if plan:
        with progress("Looking"), clear_mistakes(settings):
            steps = asyncio.run(bootstrap.migration_plan(settings))
        for step in steps:
            click.echo(_told(step))
        click.echo(f"Nothing was changed; {len({step.schema for step in steps})} schema files would be applied")
        return
    with progress("Migrating"), clear_mistakes(settings):
        applied = asyncio.run(_migrate(settings))
    for number in applied:
        click.echo(f"schema {number} applied")
    click.echo(f"{shown(settings.database)} is up to date")


async def _migrate(settings: Settings) -> list[int]:
    source = settings.sources.get("database")
    if source is None or source.kind != "flag":
        await refuse_second(settings)
    return await bootstrap.migrate(settings)


def _told(step: Step) -> str:
    kind = f"{step.kind} {step.table}".strip()
    if not step.seconds:
        return f"schema {step.schema}: {kind}, at once"
    meanwhile = "nothing is written to it meanwhile" if step.blocks else "while it is used"
    return f"schema {step.schema}: {kind} ({step.rows:,} rows), about {step.seconds:,.1f} s, {meanwhile}"
