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
    examine,
    log_fault,
    log_size,
    make_objects,
    make_secrets,
    schema_version,
    secret_fault,
    sqlite_path,
)
from heliograph.cli.checks.findings import Finding, Level, Site, fail, ok, warn
from heliograph.cli.checks.machine import there
from heliograph.cli.options import DATABASE_ERRORS, shown
from heliograph.data_folder import LOST
from heliograph.runtime.clock import OFF_MS, Clock
from heliograph.settings import BadSetting, Settings
from heliograph.storage.audit import Chain
from heliograph.storage.engine.database import StoreUnavailable, reason_of
from heliograph.storage.engine.migrate import ForeignSchema
from heliograph.storage.engine.postgres import Hosts, connect
from heliograph.storage.engine.s3 import Objects

OTHERS = 0o077  # file mode bits that grant access to group and others
POSTGRES_MIN = 130000
# One query for all PostgreSQL settings that are checked.
ASKED = """SELECT current_setting('server_version_num')::int AS version, current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes, current_setting('server_encoding') AS encoding,
    current_setting('max_connections')::int AS connections, pg_is_in_recovery() AS standby,
    has_schema_privilege('public', 'CREATE') AS may_create,
    (date_part('epoch', clock_timestamp()) * 1000)::bigint AS now"""


# -- existing installation ---------------------------------------------------------------------------------


async def read_database(site: Site) -> list[Finding]:
    settings = site.settings
    name, path = shown(settings.database), sqlite_path(settings)
    if path is not None and not path.exists():
        return [warn(f"{name} does not exist yet", "heliograph migrate makes it, and so does the first start")]
    try:
        schema = await schema_version(settings)
        if schema.found < schema.needed:
            fix = "heliograph migrate, or start the service"
            return [warn(f"{name} has schema {schema.found}, this version needs {schema.needed}", fix)]
        site.seen = await examine(settings)
    except ForeignSchema as error:
        return [fail(str(error), "install that version, or restore a backup")]
    except (*DATABASE_ERRORS, OSError) as error:
        return [fail(f"{name}: {reason_of(error)}")]
    return [ok(f"{name} can be read and written, schema {schema.found}")]


def audit_log(chain: Chain) -> Finding:
    """Check the hash chain of the audit log.

    The finding shows the last link: compared with a copy recorded elsewhere, it also reveals a recomputed chain.
    """
    if chain.broken and chain.broken.is_unlinked:
        fix = "ask again in a minute: the service brings it in, and an entry says so"
        return warn(f"{chain.broken.why} yet: a process of the version before wrote it, or somebody did by hand", fix)
    if chain.broken:
        return fail(f"it was changed by hand: {chain.broken.why}")
    older = ", older ones are brought in by the service" if chain.waiting else ""
    end = f", which ends with {chain.link[:16]}" if chain.link else ""
    return ok(f"{chain.entries} entries are an unbroken chain{end}{older}")


def log(site: Site) -> Iterator[Finding]:
    """Check the size of the SQLite WAL, which grows without limit if it is not checkpointed."""
    if fault := log_fault(site.settings):
        yield warn(f"{fault}: nobody brings it into the database")
    elif found := log_size(site.settings):
        yield ok(found[0])


def open_to_others(site: Site) -> Iterator[Finding]:
    """Check that only the owner can read the data folder and the SQLite file, which hold messages in plain text.

    The WAL has the same mode as the database file.
    """
    path = sqlite_path(site.settings)
    for place, mode in ((site.settings.data, "700"), *([(path, "600")] if path else [])):
        if place.exists() and (found := stat.S_IMODE(place.stat().st_mode)) & OTHERS:
            yield fail(f"{place} has mode {found:04o}: others can read it", f"chmod {mode} {place}")


def secret(site: Site) -> Iterator[Finding]:
    found, fault = _secret(site.settings), None
    with suppress(OSError, ValueError):  # an unreadable secret file is reported by _secret
        fault = secret_fault(make_secrets(site.settings), site.seen.secret) if site.seen else None
    if fault:
        yield fail(fault)
    if found.level != "ok" or not fault:
        yield found


def _secret(settings: Settings) -> Finding:
    if settings.secret is not None:
        return ok("given by the settings")
    path = settings.data / "secret"
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        key = base64.b64decode(path.read_text().strip(), validate=True)
    except FileNotFoundError:
        return ok(f"{path} does not exist yet and is made at the first start")
    except (OSError, binascii.Error, ValueError):
        key = b""
    if len(key) != 32:
        return fail(f"{path} cannot be read as 32 bytes in base64", "restore it from a backup")
    if mode & OTHERS:
        return fail(f"{path} has mode {mode:04o}: others can read it", f"chmod 600 {path}")
    return ok(f"{path} is there, mode {mode:04o}")


def sealed(site: Site) -> Iterator[Finding]:
    with suppress(OSError, ValueError):  # an unreadable secret file is reported by _secret
        secrets = make_secrets(site.settings)
        if site.seen and site.seen.sealed and secrets.adopt(site.seen.secret.digest, site.seen.secret.kept):
            counted = secrets.count(site.seen.sealed)
            told = ", ".join(f"{many} under {name}" for name, many in counted.items() if many)
            if counted.get(LOST):
                yield warn(told, "operations.md says how each of them is set again")
            else:
                yield (warn if secrets.under_others(site.seen.sealed) else ok)(told)


# -- attachments -------------------------------------------------------------------------------------------


async def attachments(settings: Settings, probe: Callable[[Objects], Awaitable[None]]) -> list[Finding]:
    """Run `probe` on the object store, if attachments are kept in one."""
    try:
        if (objects := make_objects(settings)) is None:
            return []
        await probe(objects)
    except (BadSetting, StoreUnavailable) as error:
        return [fail(str(error))]
    return [ok(f"{settings.attachments} answers")]


async def list_objects(objects: Objects) -> None:
    async for _ in objects.listed():
        return


async def try_objects(objects: Objects) -> None:
    """Put, read, list and delete a test object: every operation that the service uses."""
    name = Clock().new_id("preflight-")
    await objects.put(name, name.encode())
    try:
        if b"".join([part async for part in objects.read(name)]) != name.encode():
            raise StoreUnavailable("what was put is not what is read")
        await list_objects(objects)
    finally:
        await objects.drop([name])


# -- before installation -----------------------------------------------------------------------------------


async def database_place(site: Site) -> list[Finding]:
    settings = site.settings
    if (path := sqlite_path(settings)) is not None:
        place = there(path.parent)
        if os.access(place, os.W_OK | os.X_OK):
            return [ok(f"SQLite {apsw.sqlite_lib_version()} can write to {place}")]
        return [fail(f"{place} cannot be written", "choose another place with --database")]
    try:
        connection: Any = await connect(Hosts(settings.database, settings.database_connect_s))
    except (StoreUnavailable, OSError) as error:
        return [fail(f"{shown(settings.database)}: {error}")]
    try:
        site.server = dict(await connection.fetchrow(ASKED))
    finally:
        connection.terminate()
    return list(postgres(settings, site.server))


def postgres(settings: Settings, found: dict[str, Any]) -> Iterator[Finding]:
    """Check PostgreSQL's version and settings; those that could lose accepted messages are failures."""
    needed, encoding = settings.processes * (settings.database_pool + 1), found["encoding"]
    faults: list[tuple[bool, Level, str, str]] = [
        (found["version"] < POSTGRES_MIN, "FAIL", "it is older than PostgreSQL 13", "upgrade it"),
        (found["standby"], "FAIL", "it is a standby and takes no writes", "name the primary, or all hosts"),
        (found["fsync"] != "on", "FAIL", "fsync is off: a crash loses accepted messages", "fsync = on"),
        (found["full_page_writes"] != "on", "FAIL", "full_page_writes is off: a crash may destroy tables", "set it on"),
        (encoding != "UTF8", "FAIL", f"its encoding is {encoding}", "CREATE DATABASE … ENCODING UTF8"),
        (not found["may_create"], "FAIL", "this user may not make tables", "GRANT CREATE ON SCHEMA public TO the user"),
        (
            found["connections"] < needed + 3,  # the server reserves three connections for superusers
            "warn",
            f"max_connections is {found['connections']}, {settings.processes} processes may take {needed}",
            "raise max_connections, or lower HELIOGRAPH_DATABASE_POOL or --processes",
        ),
    ]
    wrong = [Finding("", level, message, fix) for is_wrong, level, message, fix in faults if is_wrong]
    yield from wrong or [ok(f"PostgreSQL {found['version'] // 10000} is set up well")]


def database_clock(site: Site) -> list[Finding]:
    return [off_clock(site.server["now"] - Clock().now())] if site.server else []


def off_clock(ahead_ms: int) -> Finding:
    if abs(ahead_ms) < OFF_MS:
        return ok(f"the database's differs by {abs(ahead_ms) / 1000:.1f} s")
    return fail(f"the database's differs by {abs(ahead_ms) / 1000:.0f} s")
