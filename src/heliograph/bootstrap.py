"""Opens the configured store (SQLite or PostgreSQL): migrates the database and loads the matching master secret."""

import asyncio
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import apsw
import asyncpg
import structlog

from heliograph.data_folder import (
    Secrets,
    forget_files,
    keep_file,
    keep_number,
    mark,
    mark_of,
    seen_files,
    seen_numbers,
)
from heliograph.domain.operations.erasure import erased_name
from heliograph.runtime.clock import Clock
from heliograph.settings import BadSetting, Settings
from heliograph.storage.attachments import OtherOwner
from heliograph.storage.diagnostics import Examination, read_and_close
from heliograph.storage.engine import postgres
from heliograph.storage.engine.database import Database, StoreUnavailable, reason_of
from heliograph.storage.engine.faults import folder_fault, postgres_fault, sqlite_fault
from heliograph.storage.engine.local_files import Blobs
from heliograph.storage.engine.migrate import (
    SchemaVersion,
    migrate_postgres,
    migrate_sqlite,
    postgres_version,
    sqlite_version,
)
from heliograph.storage.engine.migration_plan import Step, plan_postgres, plan_sqlite
from heliograph.storage.engine.postgres import PostgresDatabase
from heliograph.storage.engine.s3 import Objects, S3Bucket
from heliograph.storage.engine.sqlite import SqliteDatabase
from heliograph.storage.master_secret import KnownSecret
from heliograph.storage.store import Store, make_store

SQLITE = "sqlite:///"
LOG_MB = 256  # size of the SQLite WAL that is reported; Litestream keeps it far below
MEND_LOG = "start Litestream, or set HELIOGRAPH_CHECKPOINT=own"
OWN_S = 5.0  # timeout for the object store at the start
MEND_SECRET = (
    "Put the right one back: the data folder's secret, or HELIOGRAPH_SECRET. "
    "If it is lost for good: heliograph secret replace (what it sealed can no longer be opened)."
)

log = structlog.get_logger()


def sqlite_path(settings: Settings) -> Path | None:
    """Return the database file, or None when the database is PostgreSQL."""
    if settings.database.startswith(SQLITE):
        return Path(settings.database.removeprefix(SQLITE))
    return None


def log_size(settings: Settings) -> tuple[str, int] | None:
    """Return a text with the SQLite WAL's size, and the size in MB; None unless checkpoints are external."""
    path = sqlite_path(settings)
    file = path and path.with_name(f"{path.name}-wal")
    if settings.checkpoint == "own" or file is None or not file.exists():
        return None
    size = file.stat().st_size >> 20
    return f"{file} has {size} MB", size


def log_fault(settings: Settings) -> str | None:
    """Return the WAL's size as text if the SQLite WAL is not being checkpointed, else None."""
    told, size = log_size(settings) or ("", 0)
    return told if size >= LOG_MB else None


async def migrate(settings: Settings) -> list[int]:
    """Migrate the database to this version's schema; return the numbers of the migrations applied."""
    path = sqlite_path(settings)
    if path is None:
        return await migrate_postgres(settings.database, settings.database_connect_s)
    return migrate_sqlite(path)


async def migration_plan(settings: Settings) -> list[Step]:
    """Return the migrations that `migrate` would apply; does not create a missing database."""
    path = sqlite_path(settings)
    if path is None:
        return await plan_postgres(settings.database, settings.database_connect_s)
    connection = apsw.Connection(str(path) if path.exists() else ":memory:", flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return plan_sqlite(connection)
    finally:
        connection.close()


async def schema_version(settings: Settings) -> SchemaVersion:
    path = sqlite_path(settings)
    if path is None:
        return await postgres_version(settings.database, settings.database_connect_s)
    return sqlite_version(path)


async def examine(settings: Settings) -> Examination:
    """Return a read-only snapshot for `doctor`; changes nothing and does not create the data folder."""
    return await read_and_close(make_database(settings), Clock().now())


def make_database(settings: Settings) -> Database:
    path = sqlite_path(settings)
    if path is not None:
        return SqliteDatabase(path, checkpoint=settings.checkpoint == "own")
    return PostgresDatabase(
        settings.database, settings.database_pool, settings.database_timeout_s, settings.database_connect_s
    )


def is_outage(error: BaseException) -> bool:
    """Return whether the error only means that the database or the network is unavailable."""
    return isinstance(error, StoreUnavailable | OSError | asyncpg.InterfaceError) or (
        isinstance(error, asyncpg.PostgresError) and postgres.is_outage(error)
    )


def database_fault(settings: Settings, error: BaseException) -> tuple[str, str]:
    """Return why the database or the data folder cannot be used, and how to fix that."""
    if isinstance(error, OSError) and error.filename:
        return folder_fault(error)
    path = sqlite_path(settings)
    return postgres_fault(error) if path is None else sqlite_fault(path, error.__cause__ or error)


def make_objects(settings: Settings) -> Objects | None:
    """Return the object store of attachments if configured, else None; does not connect yet."""
    if not settings.attachments:
        return None
    name, _, prefix = settings.attachments.removeprefix("s3://").partition("/")
    bucket = S3Bucket(
        name=name,
        prefix=prefix,
        endpoint=settings.s3_endpoint,
        region=settings.s3_region,
        access_key=settings.s3_access_key,
        secret_key=settings.s3_secret_key,
    )
    try:
        return Objects(bucket)
    except ImportError:
        raise BadSetting(f"attachments {settings.attachments}: needs pip install 'heliograph[s3]'") from None


def make_secrets(settings: Settings, store: Store | None = None) -> Secrets:
    """Return the secrets; with a store, the master secret that its database uses is selected."""
    made = Secrets(settings.data, settings.secret, settings.secret_old)
    if store:
        made.adopt(store.secret.seen.digest, store.secret.seen.kept)
    return made


@asynccontextmanager
async def open_store(
    settings: Settings, clock: Clock | None = None, owner: str = "", secrets: Secrets | None = None
) -> AsyncIterator[Store]:
    """Open a migrated store with a fresh setup.

    `owner`: process name, needed to claim messages or Idempotency-Keys.
    """
    await migrate(settings)
    known = secrets or make_secrets(settings)
    blobs = Blobs(settings.data / "blobs")

    def name_of(team: int, address: str) -> str:
        return erased_name(known.erasure, team, address)  # the secret is read on first use

    store = make_store(
        make_database(settings),
        blobs,
        clock or Clock(),
        owner,
        name_of,
        blobs_in_database=sqlite_path(settings) is None,
        objects=make_objects(settings),
    )
    try:
        await store.refresh()
        found = await store.secret.known()
        with suppress(OSError, ValueError):  # an unreadable secret file fails later, where the secret is needed
            known.adopt(found.digest, found.kept)
        yield store
    finally:
        await store.close()


class WrongSecret(Exception):
    """The database was encrypted with a different master secret; the message says what to do."""


async def check_secret(store: Store, secrets: Secrets) -> None:
    """Raise WrongSecret if the master secret does not match the database.

    A database without a recorded secret and without encrypted data accepts any secret.
    """
    known = await store.secret.known()
    fault = secret_fault(secrets, known)
    if fault is None and known.digest is None:
        met = await store.secret.meet(secrets.digest)
        fault = secret_fault(secrets, KnownSecret(met, known.sealed))
    if fault:
        raise WrongSecret(fault)


def secret_fault(secrets: Secrets, known: KnownSecret) -> str | None:
    """Return what is wrong with the local master secret and how to fix that, or None; never creates a secret."""
    if not secrets.exists():
        is_needed = known.digest or known.sealed
        return f"the master secret is gone: there is no {secrets.file}. {MEND_SECRET}" if is_needed else None
    if known.digest is None or any(hmac.compare_digest(known.digest, one) for one in secrets.digests):
        return None
    where = "HELIOGRAPH_SECRET" if secrets.given else secrets.file
    return f"{where} is not the master secret of this database. {MEND_SECRET}"


async def own_attachments(store: Store) -> None:
    """Claim the bucket of attachments; raise BadSetting if another instance uses it.

    An unreachable object store does not delay the start: the claim is repeated with the first file.
    """
    try:
        async with asyncio.timeout(OWN_S):
            await store.attachments.own()
    except OtherOwner as error:
        raise BadSetting(str(error)) from None
    except (StoreUnavailable, TimeoutError) as error:
        log.warning("the object store of attachments is away", error=reason_of(error))


async def pause_if_turned_back(store: Store, data: Path, file: Path | None = None) -> bool:
    """Pause delivery if the database was restored from an older backup or its file was copied; return whether it was.

    The data folder has the highest number seen of each database. `file`: the SQLite file, None for PostgreSQL.
    """
    seen, files = await asyncio.to_thread(seen_numbers, data), await asyncio.to_thread(seen_files, data)
    here = mark_of(file) if file else None
    copied = [identity for identity, known in files.items() if known != here] if file else []
    compared = await store.upkeep.pause_if_turned_back(seen, copied)
    await asyncio.to_thread(keep_number, data, compared.identity, compared.number)
    if file and (marked := here or mark(file)):
        await asyncio.to_thread(keep_file, data, compared.identity, marked)
    if compared.turned_back:
        log.error("the database was turned back: delivery is paused")
    return compared.turned_back


async def leave(store: Store, data: Path) -> None:
    """Record a clean shutdown, so that the database file may be moved before the next start."""
    await pause_if_turned_back(store, data)
    await asyncio.to_thread(forget_files, data)
