"""Builds everything by hand: settings → store → carriers → api | worker. Only this page knows which exist."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from heliograph.channels.carrier import Carrier
from heliograph.channels.email.simulator import EmailSimulator
from heliograph.channels.sms.simulator import SmsSimulator
from heliograph.channels.whatsapp.simulator import WhatsappSimulator
from heliograph.clock import Clock
from heliograph.rules import team
from heliograph.settings import Settings
from heliograph.storage.blobs import Blobs
from heliograph.storage.database import Database
from heliograph.storage.migrate import migrate_postgres, migrate_sqlite
from heliograph.storage.postgres import PostgresDatabase
from heliograph.storage.sqlite import SqliteDatabase
from heliograph.storage.store import Store

SQLITE = "sqlite:///"

# (channel, kind) → how to make that carrier from its options and the default step of simulators.
CARRIERS: dict[tuple[str, str], Callable[[int], Carrier]] = {
    ("email", "simulator"): EmailSimulator,
    ("sms", "simulator"): SmsSimulator,
    ("whatsapp", "simulator"): WhatsappSimulator,
}


def sqlite_path(settings: Settings) -> Path | None:
    """The database file, or None when the database is PostgreSQL."""
    if settings.database.startswith(SQLITE):
        return Path(settings.database.removeprefix(SQLITE))
    return None


async def migrate(settings: Settings) -> list[int]:
    """Bring the database to this code's schema; answers the numbers of the files applied."""
    path = sqlite_path(settings)
    return await migrate_postgres(settings.database) if path is None else migrate_sqlite(path)


def make_database(settings: Settings) -> Database:
    path = sqlite_path(settings)
    return PostgresDatabase(settings.database) if path is None else SqliteDatabase(path)


@asynccontextmanager
async def open_store(settings: Settings, clock: Clock | None = None, owner: str = "") -> AsyncIterator[Store]:
    """A migrated store with a fresh setup; a process that claims work or keys needs an owner's name."""
    await migrate(settings)
    store = Store(make_database(settings), Blobs(settings.data / "blobs"), clock or Clock(), owner)
    try:
        await store.refresh_setup()
        yield store
    finally:
        await store.close()


def make_carrier(settings: Settings, record: team.Carrier) -> Carrier:
    step_ms = record.options.get("step_ms", settings.simulator_step_ms)
    return CARRIERS[record.channel, record.kind](step_ms)
