"""`heliograph backup`: copies the database and attachments while the service runs."""

import asyncio
import os
import shutil
from pathlib import Path

import click

from heliograph.bootstrap import SQLITE_PREFIX, open_store, sqlite_path
from heliograph.cli.options import STORE_FLAGS, progress, readable_errors, with_settings, without_password
from heliograph.data_folder import mark_backup
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.ids import timestamp
from heliograph.manage.pause import set_paused
from heliograph.runtime.clock import Clock
from heliograph.settings import Settings
from heliograph.storage.engine.local_files import LocalFiles, sync_folder
from heliograph.storage.engine.sqlite import copy_sqlite

DATABASE_FILE = "heliograph.db"
POSTGRES_HINT = (
    "back up PostgreSQL with pg_dump. To restore with delivery paused: pg_restore, then "
    "heliograph pause --database URL, then start the service."
)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@with_settings(*STORE_FLAGS)
def backup(settings: Settings, folder: Path) -> None:
    """Copy the database and the attachments to FOLDER, which must not exist yet. The service can keep running.

    Delivery is paused in the copy, because messages sent after the backup would be sent again. The secret is not
    copied: back it up separately.

    \b
    heliograph backup /backups/monday
    cp heliograph-data/secret /backups/monday/
    heliograph serve --data /backups/monday --database sqlite:////backups/monday/heliograph.db
    heliograph resume --data /backups/monday --database sqlite:////backups/monday/heliograph.db
    """
    path = sqlite_path(settings)
    if path is None:
        raise click.ClickException(POSTGRES_HINT)
    if not path.exists():
        raise click.ClickException(f"there is no database {without_password(settings.database)}. Check --database.")
    if folder.exists():
        raise click.ClickException(f"{folder} already exists. Choose a new folder.")
    with progress("Copying"), readable_errors(settings):
        copy(path, settings.data, folder)
        mark_backup(settings.data)
    click.echo(f"{folder} is the backup. Delivery is paused in it until you run: heliograph resume")


def copy(database: Path, data: Path, folder: Path) -> None:
    """Copy database and attachments to a temporary folder, sync it to disk, and rename it to `folder` when complete."""
    temporary = folder.with_name(f"{folder.name}.{os.getpid()}.new")
    temporary.mkdir(0o700, parents=True)
    try:
        copied_at = Clock().now()
        copy_sqlite(database, temporary / DATABASE_FILE)
        # Attachments are copied after the database, so that none is missing that the copied database refers to.
        LocalFiles(data / "blobs").copy_to(LocalFiles(temporary / "blobs"))
        asyncio.run(_pause(temporary, f"restored from a backup of {timestamp(copied_at)}"))
        with open(temporary / DATABASE_FILE, "rb") as file:
            os.fsync(file.fileno())
        sync_folder(temporary)
        temporary.rename(folder)
        sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


async def _pause(folder: Path, reason: str) -> None:
    settings = Settings(database=f"{SQLITE_PREFIX}{folder / DATABASE_FILE}", data=folder)
    async with open_store(settings) as store:
        await set_paused(store, COMMAND_LINE, True, reason)
