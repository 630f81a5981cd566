"""`heliograph backup`: copies the database and attachments while the service runs."""

import asyncio
import os
import shutil
from pathlib import Path

import click

from heliograph.bootstrap import SQLITE, open_store, sqlite_path
from heliograph.cli.options import STORE_FLAGS, clear_mistakes, progress, shown, with_settings
from heliograph.data_folder import mark_backup
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.ids import timestamp
from heliograph.manage.pause import set_paused
from heliograph.runtime.clock import Clock
from heliograph.settings import Settings
from heliograph.storage.engine.local_files import Blobs, sync_folder
from heliograph.storage.engine.sqlite import copy_sqlite

DATABASE = "heliograph.db"
POSTGRES = (
    "a PostgreSQL database is copied with pg_dump. Restore it with delivery paused: pg_restore, then "
    "heliograph pause --database URL, then start."
)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@with_settings(*STORE_FLAGS)
def backup(settings: Settings, folder: Path) -> None:
    """Copy the database and the attachments into FOLDER, which must not exist yet; the service may run.

    A service started on the copy has delivery paused, because what was sent since is due in it again. The secret is
    not copied: keep it elsewhere.

    \b
    heliograph backup /backups/monday
    cp heliograph-data/secret /backups/monday/
    heliograph serve --data /backups/monday --database sqlite:////backups/monday/heliograph.db
    heliograph resume --data /backups/monday --database sqlite:////backups/monday/heliograph.db
    """
    path = sqlite_path(settings)
    if path is None:
        raise click.ClickException(POSTGRES)
    if not path.exists():
        raise click.ClickException(f"there is no database {shown(settings.database)}. Check --database.")
    if folder.exists():
        raise click.ClickException(f"{folder} exists already. Name a new folder.")
    with progress("Copying"), clear_mistakes(settings):
        copy(path, settings.data, folder)
        mark_backup(settings.data)
    click.echo(f"{folder} is a backup. A service started on it has delivery paused until: heliograph resume")


def copy(database: Path, data: Path, folder: Path) -> None:
    """Copy database and attachments to a temporary folder, sync it to disk, then rename it to `folder`.

    A folder with the final name is therefore always a complete backup.
    """
    temporary = folder.with_name(f"{folder.name}.{os.getpid()}.new")
    temporary.mkdir(0o700, parents=True)
    try:
        at = Clock().now()
        copy_sqlite(database, temporary / DATABASE)
        # Copied after the database, so that every attachment the copied database refers to is included.
        Blobs(data / "blobs").copy_to(Blobs(temporary / "blobs"))
        asyncio.run(_pause(temporary, f"restored from a backup of {timestamp(at)}"))
        with open(temporary / DATABASE, "rb") as file:
            os.fsync(file.fileno())
        sync_folder(temporary)
        temporary.rename(folder)
        sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


async def _pause(folder: Path, reason: str) -> None:
    settings = Settings(database=f"{SQLITE}{folder / DATABASE}", data=folder)
    async with open_store(settings) as store:
        await set_paused(store, COMMAND_LINE, True, reason)
