"""Explains to the operator why a database cannot be used, and how to fix the problem: one line each."""

import errno
import os
import pwd
from pathlib import Path

import apsw
import asyncpg

from heliograph.storage.engine.database import error_text

CHECK_DATABASE = "Check --database or HELIOGRAPH_DATABASE"
FREE_SPACE_ADVICE = "Free some space there"
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)
CHECK_EFFECTIVE_IDS = os.access in os.supports_effective_ids
FIX_BY_SQLSTATE = {
    "28P01": f"{CHECK_DATABASE}: its user and password",
    "28000": f"{CHECK_DATABASE}: its user and password, and the server's pg_hba.conf",
    "3D000": f"Create it with createdb, or name another one. {CHECK_DATABASE}",
    "53300": "Raise the server's max_connections, or lower HELIOGRAPH_DATABASE_POOL or the number of processes",
    "53100": "Free some space on the server's disk",
    "42501": "As the database's owner: GRANT CREATE ON SCHEMA public TO the user of --database",
    "57P03": "Wait until the server has started",
}


def sqlite_fault(path: Path, error: BaseException) -> tuple[str, str]:
    """Return why a SQLite file cannot be used, and the fix, according to the file system and SQLite's error."""
    folder = path.parent
    if isinstance(error, apsw.FullError) or _is_full(folder):
        return f"the disk of {folder} is full", FREE_SPACE_ADVICE
    if path.is_dir():
        return f"{path} is a folder", f"Name a file in it. {CHECK_DATABASE}"
    if not folder.is_dir():
        return f"there is no folder {folder}", f"Create it. {CHECK_DATABASE}"
    for path_to_check in (path, folder):
        if path_to_check.exists() and not _is_writable(path_to_check):
            return _access_fault(path_to_check, "choose another file with --database or HELIOGRAPH_DATABASE")
    return error_text(error), CHECK_DATABASE


def postgres_fault(error: BaseException) -> tuple[str, str]:
    """Return why a PostgreSQL server cannot be used, and the fix."""
    cause = error.__cause__ or error
    if isinstance(cause, asyncpg.PostgresError):
        return error_text(error), FIX_BY_SQLSTATE.get(cause.sqlstate or "", CHECK_DATABASE)
    if isinstance(cause, TimeoutError):
        return "PostgreSQL does not answer", f"{CHECK_DATABASE}: host and port, and that no firewall is between"
    if isinstance(cause, ConnectionRefusedError):
        return error_text(error), f"Start the server, or name another. {CHECK_DATABASE}"
    return error_text(error), CHECK_DATABASE


def folder_fault(error: OSError) -> tuple[str, str]:
    """Return why a file or folder of the service cannot be used, and the fix."""
    path = Path(str(error.filename))
    if error.errno in NO_SPACE:
        return f"the disk of {path} is full", FREE_SPACE_ADVICE
    alternative = "choose another folder with --data or --database"
    if error.errno in NO_ACCESS:
        existing_path = next((part for part in (path, *path.parents) if part.exists()), path)
        if not _is_writable(existing_path):
            return _access_fault(existing_path, alternative)
    return f"{path}: {error.strerror}", alternative.capitalize()


def _is_full(folder: Path) -> bool:
    try:
        volume = os.statvfs(folder)
    except OSError:
        return False
    return volume.f_bavail == 0 < volume.f_blocks


def _is_writable(path: Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK, effective_ids=CHECK_EFFECTIVE_IDS)


def _access_fault(path: Path, alternative: str) -> tuple[str, str]:
    """Return why a file or folder is not writable, and the fix. `alternative`: text of another possible fix."""
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return f"{path} is on a read-only file system", f"Mount it writable, or {alternative}"
    ownership = f"belongs to {_user_name(path.stat().st_uid)} and is not writable for {_user_name(os.geteuid())}"
    return f"{path} {ownership}", f"Run as its owner, change its owner with chown, or {alternative}"


def _user_name(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user id {uid}"
