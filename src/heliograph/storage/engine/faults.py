"""Explains to the operator why a database cannot be used and how to fix that: one line each."""

import errno
import os
import pwd
from pathlib import Path

import apsw
import asyncpg

from heliograph.storage.engine.database import reason_of

CHECK = "Check --database or HELIOGRAPH_DATABASE"
FREE_SPACE = "Free some space there"
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)
EFFECTIVE = os.access in os.supports_effective_ids
# Fixes by SQLSTATE.
POSTGRES_FIXES = {
    "28P01": f"{CHECK}: its user and password",
    "28000": f"{CHECK}: its user and password, and the server's pg_hba.conf",
    "3D000": f"Create it with createdb, or name another one. {CHECK}",
    "53300": "Raise the server's max_connections, or lower HELIOGRAPH_DATABASE_POOL or the number of processes",
    "53100": "Free some space on the server's disk",
    "42501": "As the database's owner: GRANT CREATE ON SCHEMA public TO the user of --database",
    "57P03": "Wait until the server has started",
}


def sqlite_fault(path: Path, error: BaseException) -> tuple[str, str]:
    """Return why a SQLite file cannot be used, and the fix.

    The file system is inspected, because SQLite's error messages have little detail.
    """
    folder = path.parent
    if isinstance(error, apsw.FullError) or _is_full(folder):
        return f"the disk of {folder} is full", FREE_SPACE
    if path.is_dir():
        return f"{path} is a folder", f"Name a file in it. {CHECK}"
    if not folder.is_dir():
        return f"there is no folder {folder}", f"Create it. {CHECK}"
    for place in (path, folder):
        if place.exists() and not _is_writable(place):
            return _access_fault(place, "choose another file with --database or HELIOGRAPH_DATABASE")
    return reason_of(error), CHECK


def postgres_fault(error: BaseException) -> tuple[str, str]:
    """Return why a PostgreSQL server cannot be used, and the fix."""
    cause = error.__cause__ or error
    if isinstance(cause, asyncpg.PostgresError):
        return reason_of(error), POSTGRES_FIXES.get(cause.sqlstate or "", CHECK)
    if isinstance(cause, TimeoutError):
        return "PostgreSQL does not answer", f"{CHECK}: host and port, and that no firewall is between"
    if isinstance(cause, ConnectionRefusedError):
        return reason_of(error), f"Start the server, or name another. {CHECK}"
    return reason_of(error), CHECK


def folder_fault(error: OSError) -> tuple[str, str]:
    """Return why a file or folder of the service cannot be used, and the fix."""
    place = Path(str(error.filename))
    if error.errno in NO_SPACE:
        return f"the disk of {place} is full", FREE_SPACE
    other = "choose another folder with --data or --database"
    if error.errno in NO_ACCESS:
        held = next((part for part in (place, *place.parents) if part.exists()), place)
        if not _is_writable(held):
            return _access_fault(held, other)
    return f"{place}: {error.strerror}", other.capitalize()


def _is_full(folder: Path) -> bool:
    try:
        volume = os.statvfs(folder)
    except OSError:
        return False
    return volume.f_bavail == 0 < volume.f_blocks


def _is_writable(place: Path) -> bool:
    return os.access(place, os.R_OK | os.W_OK, effective_ids=EFFECTIVE)


def _access_fault(place: Path, other: str) -> tuple[str, str]:
    """Return why a file or folder is not writable, and the fix; `other` describes an alternative."""
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        return f"{place} is on a read-only file system", f"Mount it writable, or {other}"
    users = f"belongs to {_name(place.stat().st_uid)} and is not writable for {_name(os.geteuid())}"
    return f"{place} {users}", f"Run as its owner, change its owner with chown, or {other}"


def _name(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user id {uid}"
