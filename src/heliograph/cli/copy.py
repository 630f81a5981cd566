"""`heliograph copy`: copies the whole database between SQLite and PostgreSQL."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import click
from msgspec.structs import replace

from heliograph.bootstrap import migrate, open_store, schema_version, sqlite_path
from heliograph.cli.options import readable_errors, with_settings, without_password
from heliograph.data_folder import has_running_process
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import SECOND_MS
from heliograph.manage.pause import set_paused
from heliograph.runtime.clock import Clock
from heliograph.settings import SETTINGS, Settings
from heliograph.storage.database_copy import (
    CopyConnection,
    CopyError,
    DatabaseCopy,
    PostgresConnection,
    SqliteConnection,
    Table,
    is_unfinished,
)
from heliograph.storage.engine.local_files import LocalFiles

REPORT_MS = 1000  # interval between progress messages on a terminal
STOP_POLL_S = 0.2
LIVE_PASSES = 2  # passes while the service runs: the second one copies what changed during the first one


class Progress:
    """Prints the number of rows done and the estimated remaining time, if stderr is a terminal."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.start(0)

    def start(self, total: int) -> None:
        self._total, self._done = total, 0
        self._started_at = self._printed_at = self._clock.monotonic_ms()

    def __call__(self, action: str, rows: int) -> None:
        self._done += rows
        now = self._clock.monotonic_ms()
        if sys.stderr.isatty() and now - self._printed_at >= REPORT_MS:
            left_s = (now - self._started_at) / SECOND_MS * (self._total - self._done) / max(1, self._done)
            share = f"{self._done:,} of {self._total:,} rows, {max(0, left_s):,.0f} s left"
            click.echo(f"\r\x1b[K{share} ({action})", nl=False, err=True)
            self._printed_at = now

    def clear(self) -> None:
        if sys.stderr.isatty():
            click.echo("\r\x1b[K", nl=False, err=True)


def _check_url(_: click.Context, option: click.Parameter, url: str) -> str:
    try:
        parsed_url: str = SETTINGS["database"].parse(url)
    except ValueError as error:
        raise click.BadParameter(str(error), param=option) from None
    return parsed_url


@click.command()
@click.option("--from", "source", metavar="URL", required=True, callback=_check_url,
              help="Database to copy.")  # fmt: skip
@click.option("--to", "target", metavar="URL", required=True, callback=_check_url,
              help="New database, or that of an interrupted copy.")  # fmt: skip
@click.option("--live", is_flag=True, help="Copy while the service runs; stop it when the command says so.")
@with_settings("data")
def copy(settings: Settings, source: str, target: str, live: bool) -> None:
    """Copy everything from one database to a new one, between SQLite and PostgreSQL in either direction.

    Stop the service first, or copy with --live: the command then copies while the service runs, says when to stop it,
    and copies the rest. Attachments move between the data folder and PostgreSQL as needed; those in an object store
    stay there. An interrupted copy continues when the command is run again. At the end all rows are compared.
    Delivery is then paused in both databases: start the service with the copy, check the dashboard, and run heliograph
    resume.

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
    if not live and has_running_process(settings.data):
        raise click.ClickException(
            f"a service uses the data folder {settings.data}. Stop it first, or copy with --live."
        )
    with readable_errors(source_settings):
        version = asyncio.run(schema_version(source_settings))
    if version.current != version.needed:
        raise click.ClickException(
            f"{without_password(source)} has schema {version.current}, this version has {version.needed}. "
            f"Run first: heliograph migrate --database {without_password(source)}"
        )
    with readable_errors(target_settings):
        asyncio.run(_copy(source_settings, target_settings, live))
    click.echo(
        f"{without_password(target)} is the copy. Delivery is paused in both databases until you run: heliograph resume"
    )


async def _copy(source_settings: Settings, target_settings: Settings, live: bool) -> None:
    """Copy and compare the databases, then pause delivery in both."""
    await _prepare_target(target_settings)
    clock = Clock()
    async with _connection(source_settings) as source, _connection(target_settings) as target:
        await _copy_database(source, target, source_settings.data, clock, live)
    # Without a pause, both databases would deliver the same queue.
    async with open_store(source_settings) as store:
        await set_paused(store, COMMAND_LINE, True, f"copied to another database at {timestamp(clock.now())}")


async def _prepare_target(settings: Settings) -> None:
    """Create the schema in a new database.

    A database with an unfinished copy, or with this version's schema, is accepted; others are refused.
    """
    path = sqlite_path(settings)
    if path is None or path.exists():
        async with _connection(settings) as target:
            if await is_unfinished(target):
                return
            tables = await target.tables()
        version = await schema_version(settings)
        if tables and version.current != version.needed:
            raise click.ClickException(f"the target is not empty: it has schema {version.current}. Use a new database.")
    await migrate(settings)


async def _copy_database(source: CopyConnection, target: CopyConnection, data: Path, clock: Clock, live: bool) -> None:
    progress = Progress(clock)
    database_copy = DatabaseCopy(source, target, progress)
    files, stopped_at = LocalFiles(data / "blobs"), None
    try:
        tables = await database_copy.prepare()
        if live:
            await _copy_live(database_copy, tables, files, clock, progress)
            stopped_at = await _wait_until_stopped(source, data, clock)
        await database_copy.lock()
        rows = await database_copy.count(tables)
        # Each row is read twice, to copy and to compare it. After live passes, few rows are left to copy.
        progress.start(rows if live else 2 * rows)
        written = await database_copy.synchronize(tables)
        await database_copy.copy_files(files, clock.now())
        different_tables = await database_copy.find_differences(tables)
    except CopyError as error:
        raise click.ClickException(str(error)) from None
    finally:
        progress.clear()
    if different_tables:
        raise click.ClickException(
            f"the copy differs in {', '.join(different_tables)}. Drop the target and copy again."
        )
    reason = f"copied from another database at {timestamp(clock.now())}"
    await database_copy.finish(reason, int.from_bytes(clock.random_bytes(8)) >> 1)
    click.echo(f"{rows:,} rows copied and compared: both databases are equal")
    if stopped_at is not None:
        pause_s = (clock.monotonic_ms() - stopped_at) / SECOND_MS
        click.echo(f"The pause was {pause_s:.1f} s, from the end of the service; {written:,} rows were copied in it")


async def _copy_live(
    database_copy: DatabaseCopy, tables: Sequence[Table], files: LocalFiles, clock: Clock, progress: Progress
) -> None:
    """Copy and compare while the service runs."""
    for number in range(1, LIVE_PASSES + 1):
        progress.start(await database_copy.count(tables))
        started_at = clock.monotonic_ms()
        written = await database_copy.synchronize(tables)
        with suppress(CopyError):  # the file was deleted in the meantime
            await database_copy.copy_files(files, clock.now())
        progress.clear()
        pass_s = (clock.monotonic_ms() - started_at) / SECOND_MS
        click.echo(f"Pass {number} while the service runs: {written:,} rows copied in {pass_s:.1f} s")
    progress.start(await database_copy.count(tables))
    await database_copy.find_differences(tables)  # result ignored: only the comparison after the last pass counts
    progress.clear()


async def _wait_until_stopped(source: CopyConnection, data: Path, clock: Clock) -> int:
    """Ask the operator to stop the service, and wait until it has stopped; return the monotonic time of the stop."""
    if has_running_process(data) or await source.is_in_use():
        click.echo("Stop the service now. The rest is copied when it has ended.")
        while has_running_process(data) or await source.is_in_use():
            await asyncio.sleep(STOP_POLL_S)
    return clock.monotonic_ms()


@asynccontextmanager
async def _connection(settings: Settings) -> AsyncIterator[CopyConnection]:
    path = sqlite_path(settings)
    connection: CopyConnection = SqliteConnection(path) if path else await PostgresConnection.open(settings.database)
    try:
        yield connection
    finally:
        await connection.close()
