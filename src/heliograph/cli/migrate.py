"""`heliograph migrate`: migrates the database to the schema of this version."""

import asyncio

import click

from heliograph import bootstrap
from heliograph.cli.options import (
    STORE_FLAGS,
    progress,
    readable_errors,
    refuse_second_database,
    with_settings,
    without_password,
)
from heliograph.settings import Settings
from heliograph.storage.engine.migration_plan import MigrationStep


@click.command()
@with_settings(*STORE_FLAGS)
@click.option("--plan", is_flag=True, help="Print the steps and their estimated duration, without changing anything.")
def migrate(settings: Settings, plan: bool) -> None:
    """Migrate the database to this version's schema.

    The service does this at every start; run it in advance, for example while an old version is still running.

    \b
    heliograph migrate --plan
    heliograph migrate --database postgresql://heliograph@db/heliograph
    """
    if plan:
        with progress("Planning"), readable_errors(settings):
            steps = asyncio.run(bootstrap.migration_plan(settings))
        for step in steps:
            click.echo(_format_step(step))
        click.echo(f"Nothing was changed; {len({step.schema for step in steps})} schema files would be applied")
        return
    with progress("Migrating"), readable_errors(settings):
        applied = asyncio.run(_migrate(settings))
    for number in applied:
        click.echo(f"schema {number} applied")
    click.echo(f"{without_password(settings.database)} is up to date")


async def _migrate(settings: Settings) -> list[int]:
    source = settings.sources.get("database")
    if source is None or source.kind != "flag":
        await refuse_second_database(settings)
    return await bootstrap.migrate(settings)


def _format_step(step: MigrationStep) -> str:
    action = f"{step.kind} {step.table}".strip()
    if not step.seconds:
        return f"schema {step.schema}: {action}, immediate"
    effect = "blocks writes" if step.blocks else "without blocking writes"
    return f"schema {step.schema}: {action} ({step.rows:,} rows), about {step.seconds:,.1f} s, {effect}"
