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
    delete_file_marks,
    mark_file,
    read_database_counters,
    read_file_marks,
    read_mark,
    save_database_counter,
    save_file_mark,
)
from heliograph.domain.limits import KIB
from heliograph.domain.operations.erasure import erased_entry
from heliograph.runtime.clock import Clock
from heliograph.settings import BadSetting, Settings
from heliograph.storage.attachments import BucketInUse
from heliograph.storage.diagnostics import Diagnostics, read_diagnostics
from heliograph.storage.engine import postgres
from heliograph.storage.engine.database import Database, StoreUnavailable, error_text
from heliograph.storage.engine.faults import folder_fault, postgres_fault, sqlite_fault
from heliograph.storage.engine.local_files import LocalFiles
from heliograph.storage.engine.migrate import (
    SchemaVersion,
    migrate_postgres,
    migrate_sqlite,
    postgres_version,
    sqlite_version,
)
from heliograph.storage.engine.migration_plan import MigrationStep, plan_postgres, plan_sqlite
from heliograph.storage.engine.postgres import PostgresDatabase
from heliograph.storage.engine.s3 import ObjectStore, S3Bucket
from heliograph.storage.engine.sqlite import SqliteDatabase
from heliograph.storage.engine.standby import RESPONSE_S, ReplicatedPostgres
from heliograph.storage.master_secret import KnownSecret
from heliograph.storage.store import Store, make_store

SQLITE_PREFIX = "sqlite:///"
WAL_LIMIT_MB = 256  # size from which on the SQLite WAL is reported; with Litestream it stays far smaller
WAL_FIX = "start Litestream, or set HELIOGRAPH_CHECKPOINT=own"
CLAIM_BUCKET_S = 5.0  # timeout for claiming the attachments bucket at startup
SECRET_FIX = (
    "Put the right one back: the data folder's secret, or HELIOGRAPH_SECRET. "
    "If it is lost for good: heliograph secret replace (data encrypted with it can no longer be decrypted)."
)

log = structlog.get_logger()


def sqlite_path(settings: Settings) -> Path | None:
    """Return the path of the SQLite file; None for PostgreSQL."""
    if settings.database.startswith(SQLITE_PREFIX):
        return Path(settings.database.removeprefix(SQLITE_PREFIX))
    return None


def wal_size(settings: Settings) -> tuple[str, int] | None:
    """Return the SQLite WAL's size as text and in MB; None unless another program checkpoints the WAL."""
    path = sqlite_path(settings)
    file = path and path.with_name(f"{path.name}-wal")
    if settings.checkpoint == "own" or file is None or not file.exists():
        return None
    size = file.stat().st_size >> 20
    return f"{file} has {size} MB", size


def wal_fault(settings: Settings) -> str | None:
    """Return the WAL's size as text if the SQLite WAL is not being checkpointed, else None."""
    size_text, size = wal_size(settings) or ("", 0)
    return size_text if size >= WAL_LIMIT_MB else None


async def migrate(settings: Settings) -> list[int]:
    """Migrate the database to this version's schema; return the numbers of the migrations applied."""
    path = sqlite_path(settings)
    if path is None:
        return await migrate_postgres(settings.database, settings.database_connect_s)
    return migrate_sqlite(path)


async def migration_plan(settings: Settings) -> list[MigrationStep]:
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


async def read_diagnostics_of(settings: Settings) -> Diagnostics:
    """Return a read-only snapshot for `doctor`; changes nothing and does not create the data folder."""
    return await read_diagnostics(make_database(settings), Clock().now())


def make_database(settings: Settings) -> Database:
    path = sqlite_path(settings)
    if path is not None:
        return SqliteDatabase(path, checkpoint=settings.checkpoint == "own")
    primary = make_primary(settings)
    return ReplicatedPostgres(primary, make_standby(settings)) if settings.database_read else primary


def make_primary(settings: Settings) -> PostgresDatabase:
    return PostgresDatabase(
        settings.database, settings.database_pool, settings.database_timeout_s, settings.database_connect_s
    )


def make_standby(settings: Settings) -> PostgresDatabase:
    """Return the read-only standby database that the setting `database_read` names."""
    return PostgresDatabase(
        settings.database_read,
        settings.database_pool,
        settings.database_timeout_s,
        min(settings.database_connect_s, RESPONSE_S),
        session_attrs="standby",
    )


def is_outage(error: BaseException) -> bool:
    """Return whether the error means that the database or network is unavailable, rather than misconfigured."""
    return isinstance(error, StoreUnavailable | OSError | asyncpg.InterfaceError) or (
        isinstance(error, asyncpg.PostgresError) and postgres.is_outage(error)
    )


def database_fault(settings: Settings, error: BaseException) -> tuple[str, str]:
    """Return why the database or the data folder cannot be used, and the fix."""
    if isinstance(error, OSError) and error.filename:
        return folder_fault(error)
    path = sqlite_path(settings)
    return postgres_fault(error) if path is None else sqlite_fault(path, error.__cause__ or error)


def make_objects(settings: Settings) -> ObjectStore | None:
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
        return ObjectStore(bucket)
    except ImportError:
        raise BadSetting(f"attachments {settings.attachments}: needs pip install 'heliograph[s3]'") from None


def make_secrets(settings: Settings, store: Store | None = None) -> Secrets:
    """Return the secrets; with a store, the master secret that its database uses is selected."""
    secrets = Secrets(settings.data, settings.secret, settings.secret_old)
    if store:
        secrets.use_digest(store.secret_store.last_known.digest, store.secret_store.last_known.kept_keys)
    return secrets


@asynccontextmanager
async def open_store(
    settings: Settings, clock: Clock | None = None, owner: str = "", secrets: Secrets | None = None
) -> AsyncIterator[Store]:
    """Open a migrated store with a fresh setup. `owner`: process name, needed to claim messages or Idempotency-Keys."""
    await migrate(settings)
    used_secrets = secrets or make_secrets(settings)
    blobs = LocalFiles(settings.data / "blobs")

    def erased_name_of(team: int, address: str) -> str:
        return erased_entry(used_secrets.erasure_key, team, address)  # the secret is read on first use

    store = make_store(
        make_database(settings),
        blobs,
        clock or Clock(),
        owner,
        erased_name_of,
        files_in_database=sqlite_path(settings) is None,
        objects=make_objects(settings),
        body_files_above=settings.contents_in_s3 * KIB,
        cell=settings.cell,
    )
    try:
        await store.refresh()
        registered = await store.secret_store.read()
        with suppress(OSError, ValueError):  # an unreadable secret file fails later, where the secret is needed
            used_secrets.use_digest(registered.digest, registered.kept_keys)
        yield store
    finally:
        await store.close()


class WrongSecret(Exception):
    """Raised if the database was encrypted with a different master secret; the message says what to do."""


async def check_secret(store: Store, secrets: Secrets) -> None:
    """Raise WrongSecret if the master secret does not match the database.

    A database without a recorded secret and without encrypted data accepts any secret.
    """
    registered = await store.secret_store.read()
    fault = secret_fault(secrets, registered)
    if fault is None and registered.digest is None:
        digest = await store.secret_store.register_digest(secrets.digest)
        fault = secret_fault(secrets, KnownSecret(digest, registered.has_encrypted))
    if fault:
        raise WrongSecret(fault)


def secret_fault(secrets: Secrets, registered: KnownSecret) -> str | None:
    """Return what is wrong with the local master secret and the fix; None if it is right. Never creates a secret."""
    if not secrets.exists():
        is_needed = registered.digest or registered.has_encrypted
        return f"the master secret is missing: there is no {secrets.file}. {SECRET_FIX}" if is_needed else None
    if registered.digest is None or any(
        hmac.compare_digest(registered.digest, local_digest) for local_digest in secrets.digests
    ):
        return None
    location = "HELIOGRAPH_SECRET" if secrets.configured else secrets.file
    return f"{location} is not the master secret of this database. {SECRET_FIX}"


async def claim_attachments(store: Store) -> None:
    """Claim the bucket of attachments; raise BadSetting if another instance uses it.

    An unreachable object store does not delay the start: the claim is repeated with the first file.
    """
    try:
        async with asyncio.timeout(CLAIM_BUCKET_S):
            await store.attachments.claim_bucket()
    except BucketInUse as error:
        raise BadSetting(str(error)) from None
    except (StoreUnavailable, TimeoutError) as error:
        log.warning("attachment object store unreachable", error=error_text(error))


async def pause_if_restored(store: Store, data: Path, file: Path | None = None) -> bool:
    """Pause delivery if the database was restored from an older backup or its file was copied; return whether it was.

    The data folder stores the highest counter seen of each database. `file`: the SQLite file, None for PostgreSQL.
    """
    recorded_counters = await asyncio.to_thread(read_database_counters, data)
    recorded_marks = await asyncio.to_thread(read_file_marks, data) if file else {}
    file_mark = read_mark(file) if file else None
    copied_ids = [database_id for database_id, recorded_mark in recorded_marks.items() if recorded_mark != file_mark]
    comparison = await store.maintenance.pause_if_restored(recorded_counters, copied_ids)
    await asyncio.to_thread(save_database_counter, data, comparison.database_id, comparison.counter)
    if file and (new_file_mark := file_mark or mark_file(file)):
        await asyncio.to_thread(save_file_mark, data, comparison.database_id, new_file_mark)
    if comparison.is_restored:
        log.error("database was restored from an older copy: delivery is paused")
    return comparison.is_restored


async def mark_clean_shutdown(store: Store, data: Path) -> None:
    """Record a clean shutdown, so that the database file may be moved before the next start."""
    await pause_if_restored(store, data)
    await asyncio.to_thread(delete_file_marks, data)
