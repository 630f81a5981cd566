"""Checks of stored data: database, SQLite WAL, audit log, master secret, attachments, and file permissions."""

import base64
import binascii
import os
import stat
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import apsw

from heliograph.bootstrap import (
    make_objects,
    make_primary,
    make_secrets,
    make_standby,
    read_diagnostics_of,
    schema_version,
    secret_fault,
    sqlite_path,
    wal_fault,
    wal_size,
)
from heliograph.cli.checks.findings import Finding, Site, fail, ok, warn
from heliograph.cli.checks.machine import nearest_existing
from heliograph.cli.options import DATABASE_ERRORS, without_password
from heliograph.data_folder import NO_KNOWN_SECRET
from heliograph.runtime.clock import CLOCK_ERROR_MAX_MS, Clock
from heliograph.settings import BadSetting, Settings
from heliograph.storage.audit import ChainStatus
from heliograph.storage.diagnostics import read_standby_lag
from heliograph.storage.engine.citus import Cell, is_citus, read_cell
from heliograph.storage.engine.database import StoreUnavailable, error_text
from heliograph.storage.engine.migrate import ForeignSchema, UnfinishedCopy
from heliograph.storage.engine.postgres import Hosts, connect
from heliograph.storage.engine.s3 import ObjectStore

GROUP_AND_OTHERS = 0o077  # mode bits that give the group or others access
POSTGRES_MIN = 130000  # oldest supported version, as in server_version_num
# all checked PostgreSQL settings in one query
POSTGRES_QUERY = """SELECT current_setting('server_version_num')::int AS version, current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes, current_setting('server_encoding') AS encoding,
    current_setting('max_connections')::int AS connections, pg_is_in_recovery() AS standby,
    has_schema_privilege(coalesce(current_schema(), 'public'), 'CREATE') AS may_create,
    (date_part('epoch', clock_timestamp()) * 1000)::bigint AS now"""
# Settings of Citus nodes that suffice to move a schema of 75 tables under load.
CITUS_MINIMA = {
    "max_prepared_transactions": 200,
    "max_locks_per_transaction": 512,
    "max_replication_slots": 20,
    "max_wal_senders": 20,
    "max_worker_processes": 32,
}


# -- existing installation ---------------------------------------------------------------------------------


async def check_database(site: Site) -> list[Finding]:
    settings = site.settings
    name, path = without_password(settings.database), sqlite_path(settings)
    if path is not None and not path.exists():
        return [warn(f"{name} does not exist yet", "heliograph migrate creates it, as does the first start")]
    try:
        schema = await schema_version(settings)
        if schema.current < schema.needed:
            fix = "heliograph migrate, or start the service"
            return [warn(f"{name} has schema {schema.current}, this version needs {schema.needed}", fix)]
        site.diagnostics = await read_diagnostics_of(settings)
    except UnfinishedCopy:
        return [fail(f"{name} is an unfinished copy", "run `heliograph copy` again, which continues it")]
    except ForeignSchema as error:
        return [fail(str(error), "install that version, or restore a backup")]
    except (*DATABASE_ERRORS, OSError) as error:
        return [fail(f"{name}: {error_text(error)}")]
    return [ok(f"{name} is readable and writable, schema {schema.current}")]


async def check_standby(site: Site) -> list[Finding]:
    """Check that `database_read`, if set, is a standby of the database, and how far it is behind."""
    settings = site.settings
    if not settings.database_read:
        return []
    name = without_password(settings.database_read)
    try:
        lag = await read_standby_lag(make_primary(settings), make_standby(settings))
    except (*DATABASE_ERRORS, OSError) as error:
        return [warn(f"{name}: {error_text(error)}")]
    if lag is None:
        return [warn(f"{name} is not a standby of {without_password(settings.database)}")]
    return [ok(f"{name} is a standby, {lag / 1e6:.1f} MB behind")]


def check_audit_log(chain: ChainStatus) -> Finding:
    """Check the hash chain of the audit log.

    The finding shows the chain's last link. If an operator records it elsewhere, it later shows whether the whole
    chain was recomputed.
    """
    if chain.broken and chain.broken.is_unlinked:
        fix = "check again in a minute: the service adds it to the chain and records this in an entry"
        return warn(f"{chain.broken.reason} yet: it was written by a process of the previous version, or manually", fix)
    if chain.broken:
        return fail(f"the audit log was modified: {chain.broken.reason}")
    pending_text = "; the service is adding older entries" if chain.has_unlinked else ""
    end = f", which ends with {chain.link[:16]}" if chain.link else ""
    return ok(f"{chain.entries} entries form an unbroken chain{end}{pending_text}")


def check_wal(site: Site) -> Iterator[Finding]:
    """Check the size of the SQLite WAL, which grows without limit if it is not checkpointed."""
    if fault := wal_fault(site.settings):
        yield warn(f"{fault}: the WAL is not being checkpointed")
    elif size := wal_size(site.settings):
        yield ok(size[0])


def check_file_modes(site: Site) -> Iterator[Finding]:
    """Check that only the owner can read the data folder and the SQLite file, which hold messages in plain text.

    SQLite gives the WAL the same mode as the database file.
    """
    path = sqlite_path(site.settings)
    for target, mode in ((site.settings.data, "700"), *([(path, "600")] if path else [])):
        if target.exists() and (actual_mode := stat.S_IMODE(target.stat().st_mode)) & GROUP_AND_OTHERS:
            yield fail(f"{target} has mode {actual_mode:04o}: other users can read it", f"chmod {mode} {target}")


def check_secret(site: Site) -> Iterator[Finding]:
    finding, fault = _check_secret_file(site.settings), None
    with suppress(OSError, ValueError):  # reported by _check_secret_file
        fault = secret_fault(make_secrets(site.settings), site.diagnostics.secret) if site.diagnostics else None
    if fault:
        yield fail(fault)
    if finding.level != "ok" or not fault:
        yield finding


def _check_secret_file(settings: Settings) -> Finding:
    if settings.secret is not None:
        return ok("given in the settings")
    path = settings.data / "secret"
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        key = base64.b64decode(path.read_text().strip(), validate=True)
    except FileNotFoundError:
        return ok(f"{path} does not exist yet; it is created at the first start")
    except (OSError, binascii.Error, ValueError):
        key = b""
    if len(key) != 32:
        return fail(f"{path} does not contain 32 bytes in base64", "restore it from a backup")
    if mode & GROUP_AND_OTHERS:
        return fail(f"{path} has mode {mode:04o}: other users can read it", f"chmod 600 {path}")
    return ok(f"{path} exists, mode {mode:04o}")


def check_encryption(site: Site) -> Iterator[Finding]:
    with suppress(OSError, ValueError):  # reported by _check_secret_file
        secrets = make_secrets(site.settings)
        if (
            site.diagnostics
            and site.diagnostics.encrypted
            and secrets.use_digest(site.diagnostics.secret.digest, site.diagnostics.secret.kept_keys)
        ):
            counts = secrets.count_by_secret(site.diagnostics.encrypted)
            text = ", ".join(f"{count} encrypted with {name}" for name, count in counts.items() if count)
            if counts.get(NO_KNOWN_SECRET):
                yield warn(text, "see operations.md for how to set each value again")
            else:
                yield (warn if secrets.count_outdated(site.diagnostics.encrypted) else ok)(text)


# -- attachments -------------------------------------------------------------------------------------------


async def check_attachments(settings: Settings, probe: Callable[[ObjectStore], Awaitable[None]]) -> list[Finding]:
    """Run `probe` on the object store, if attachments are stored in one."""
    try:
        if (objects := make_objects(settings)) is None:
            return []
        await probe(objects)
    except (BadSetting, StoreUnavailable) as error:
        return [fail(str(error))]
    return [ok(f"{settings.attachments} responds")]


async def list_objects(objects: ObjectStore) -> None:
    async for _ in objects.list_batches():
        return


async def try_operations(objects: ObjectStore) -> None:
    """Put, read, list and delete a test object, to try every operation that the service uses."""
    name = Clock().new_id("preflight-")
    await objects.put(name, name.encode())
    try:
        if b"".join([part async for part in objects.read(name)]) != name.encode():
            raise StoreUnavailable("the object read differs from the object written")
        await list_objects(objects)
    finally:
        await objects.delete([name])


# -- before installation -----------------------------------------------------------------------------------


async def check_database_location(site: Site) -> list[Finding]:
    settings = site.settings
    if (path := sqlite_path(settings)) is not None:
        folder = nearest_existing(path.parent)
        if os.access(folder, os.W_OK | os.X_OK):
            return [ok(f"SQLite {apsw.sqlite_lib_version()} can write to {folder}")]
        return [fail(f"{folder} is not writable", "choose another path with --database")]
    try:
        connection: Any = await connect(Hosts(settings.database, settings.database_connect_s))
    except (StoreUnavailable, OSError) as error:
        return [fail(f"{without_password(settings.database)}: {error}")]
    try:
        site.postgres = dict(await connection.fetchrow(POSTGRES_QUERY))
    finally:
        connection.terminate()
    return check_postgres(settings, site.postgres)


async def check_citus(site: Site) -> list[Finding]:
    """Check the settings of Citus, if it is installed, on the node that the database URL names."""
    settings = site.settings
    if sqlite_path(settings) is not None:
        return []
    try:
        connection: Any = await connect(Hosts(settings.database, settings.database_connect_s))
    except (StoreUnavailable, OSError):  # reported by the check of the database
        return []
    try:
        if not await is_citus(connection):
            return []
        cell = await read_cell(connection)
    finally:
        connection.terminate()
    return citus_findings(cell)


def citus_findings(cell: Cell) -> list[Finding]:
    server, findings = cell.settings, list[Finding]()
    if "citus" not in server.get("shared_preload_libraries", ""):
        fix = "shared_preload_libraries = 'citus', first in the list, and a restart"
        findings.append(fail("Citus is not preloaded", fix))
    if server.get("wal_level") != "logical":
        message = "wal_level is not logical: no cell can be moved under load"
        findings.append(warn(message, "wal_level = logical on every node"))
    if server.get("citus.enable_schema_based_sharding") != "on":
        message = "citus.enable_schema_based_sharding is off: a new schema stays on the coordinator"
        findings.append(warn(message, "ALTER DATABASE … SET citus.enable_schema_based_sharding TO on"))
    for name, minimum in CITUS_MINIMA.items():
        if name in server and int(server[name]) < minimum:
            message = f"{name} is {server[name]}: moving a cell may need {minimum}"
            findings.append(warn(message, f"{name} = {minimum} or more on every node"))
    if cell.node is None:
        fix = "create the schema with citus.enable_schema_based_sharding on, before the first migration"
        findings.append(warn(f"the schema {cell.schema or 'of the URL'} is not distributed", fix))
    return findings or [ok(f"the cell {cell.schema} is on {cell.node}")]


def check_postgres(settings: Settings, server: dict[str, Any]) -> list[Finding]:
    """Check PostgreSQL's version and settings. Settings that could lose accepted messages count as failures."""
    encoding = server["encoding"]
    faults = [
        (server["version"] < POSTGRES_MIN, fail("PostgreSQL is older than version 13", "upgrade it")),
        (server["standby"], fail("the server is a standby and read-only", "use the primary, or list all hosts")),
        (server["fsync"] != "on", fail("fsync is off: a crash loses accepted messages", "fsync = on")),
        (server["full_page_writes"] != "on", fail("full_page_writes is off: a crash may destroy tables", "set it on")),
        (encoding != "UTF8", fail(f"the database encoding is {encoding}", "CREATE DATABASE … ENCODING UTF8")),
        (not server["may_create"], fail("this user cannot create tables", "GRANT CREATE ON SCHEMA public TO the user")),
    ]
    findings = [finding for is_wrong, finding in faults if is_wrong]
    needed = settings.processes * (settings.database_pool + 1)
    if server["connections"] < needed + 3:  # the server reserves three connections for superusers
        message = f"max_connections is {server['connections']}, {settings.processes} processes may use {needed}"
        findings.append(warn(message, "raise max_connections, or lower HELIOGRAPH_DATABASE_POOL or --processes"))
    return findings or [ok(f"PostgreSQL {server['version'] // 10000} is configured correctly")]


def check_database_clock(site: Site) -> list[Finding]:
    return [check_clock_difference(site.postgres["now"] - Clock().now())] if site.postgres else []


def check_clock_difference(ahead_ms: int) -> Finding:
    if abs(ahead_ms) < CLOCK_ERROR_MAX_MS:
        return ok(f"the database's clock differs by {abs(ahead_ms) / 1000:.1f} s")
    return fail(f"the database's clock differs by {abs(ahead_ms) / 1000:.0f} s")
