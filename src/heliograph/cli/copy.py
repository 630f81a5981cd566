"""`heliograph copy`: copies the whole database between SQLite and PostgreSQL."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click
from msgspec.structs import replace

from heliograph.bootstrap import migrate, open_store, schema_version, sqlite_path
from heliograph.cli.checks.machine import get_instance_name
from heliograph.cli.options import readable_errors, with_settings, without_password
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.ids import timestamp
from heliograph.manage.pause import set_paused
from heliograph.runtime.clock import Clock
from heliograph.settings import SETTINGS, Settings
from heliograph.storage.database_copy import (
    CopyConnection,
    CopyError,
    DatabaseCopy,
    PostgresConnection,
    SqliteConnection,
    is_unfinished,
)
from heliograph.storage.engine.local_files import LocalFiles
from heliograph.storage.engine.migrate import ForeignSchema

REPORT_S = 1.0  # interval of the progress on a terminal


class Progress:
    """Prints how many rows are done and how long the rest will take, if stderr is a terminal."""

    def __init__(self) -> None:
        self.total = 0
        self._done = 0
        self._started_at = self._printed_at = time.monotonic()

    def __call__(self, action: str, rows: int) -> None:
        self._done += rows
        now = time.monotonic()
        if sys.stderr.isatty() and now - self._printed_at >= REPORT_S:
            left_s = (now - self._started_at) * (self.total - self._done) / max(1, self._done)
            share = f"{self._done:,} of {self.total:,} rows, {max(0, left_s):,.0f} s left"
            click.echo(f"\r\x1b[K{share} ({action})", nl=False, err=True)
            self._printed_at = now

    def clear(self) -> None:
        if sys.stderr.isatty():
            click.echo("\r\x1b[K", nl=False, err=True)


def _check_url(_: click.Context, option: click.Parameter, url: str) -> str:
    try:
        parsed: str = SETTINGS["database"].parse(url)
    except ValueError as error:
        raise click.BadParameter(str(error), param=option) from None
    return parsed


@click.command()
@click.option("--from", "source", metavar="URL", required=True, callback=_check_url,
              help="Database to copy; its service must be stopped.")  # fmt: skip
@click.option("--to", "target", metavar="URL", required=True, callback=_check_url,
              help="New database, or that of an interrupted copy.")  # fmt: skip
@with_settings("listen", "data")
def copy(settings: Settings, source: str, target: str) -> None:
    """Copy everything from one database to a new one, between SQLite and PostgreSQL in either direction.

    Stop the service first. Attachments move between the data folder and PostgreSQL as needed; those in an object store
    stay there. An interrupted copy continues when the command is run again. At the end all rows are compared.
    Delivery is paused in the copy: start the service with it, check the dashboard, then run heliograph resume.

    \b
    heliograph copy --from sqlite:///heliograph-data/heliograph.db --to postgresql://heliograph@db/heliograph
    heliograph serve --database postgresql://heliograph@db/heliograph
    heliograph resume --database postgresql://heliograph@db/heliograph
    """
    source_settings, target_settings = replace(settings, database=source), replace(settings, database=target)
    if source == target:
        raise click.ClickException("--from and --to name the same database.")
    path = sqlite_path(source_settings)
    if path and not path.exists():
        raise click.ClickException(f"there is no database {without_password(source)}. Check --from.")
    if get_instance_name(settings, "/healthz") is not None:
        raise click.ClickException(
            f"a service runs on {settings.listen}. Stop it first, or name another with --listen."
        )
    with readable_errors(source_settings):
        version = asyncio.run(schema_version(source_settings))
    if version.current != version.needed:
        raise click.ClickException(
            f"{without_password(source)} has schema {version.current}, this version has {version.needed}. "
            f"Run first: heliograph migrate --database {without_password(source)}"
        )
    with readable_errors(target_settings):
        rows = asyncio.run(_copy(source_settings, target_settings))
    click.echo(f"{rows:,} rows copied and compared: both databases are equal")
    click.echo(f"{without_password(target)} is the copy. Delivery is paused in it until you run: heliograph resume")


async def _copy(source_settings: Settings, target_settings: Settings) -> int:
    """Copy and compare, pause delivery in the target, and return the number of rows."""
    clock = Clock()
    try:
        await migrate(target_settings)
    except ForeignSchema:
        if not await _is_unfinished(target_settings):
            raise
    async with _opened(source_settings) as source, _opened(target_settings) as target:
        rows = await _copy_database(source, target, source_settings.data, clock.now())
    async with open_store(target_settings) as store:
        reason = f"copied from another database at {timestamp(clock.now())}"
        await set_paused(store, COMMAND_LINE, True, reason)
        await store.maintenance.change_identity()
    return rows


async def _copy_database(source: CopyConnection, target: CopyConnection, data: Path, now: int) -> int:
    progress = Progress()
    database_copy = DatabaseCopy(source, target, progress)
    try:
        tables = await database_copy.prepare()
        rows = await database_copy.count(tables)
        progress.total = 3 * rows  # each row is copied, and then read from both databases
        await database_copy.copy(tables)
        await database_copy.copy_files(LocalFiles(data / "blobs"), now)
        digests = await database_copy.compare(tables)
    except CopyError as error:
        raise click.ClickException(str(error)) from None
    finally:
        progress.clear()
    different = [name for name, (of_source, of_target) in digests.items() if of_source != of_target]
    if different:
        raise click.ClickException(
            f"the copy differs in {', '.join(different)}: the source was changed since the copy began. Drop the target "
            "and copy again."
        )
    await database_copy.finish()
    return rows


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[CopyConnection]:
    path = sqlite_path(settings)
    connection: CopyConnection = SqliteConnection(path) if path else await PostgresConnection.open(settings.database)
    try:
        yield connection
    finally:
        await connection.close()


async def _is_unfinished(settings: Settings) -> bool:
    async with _opened(settings) as target:
        return await is_unfinished(target)
