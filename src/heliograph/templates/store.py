"""Store of template and layout versions.

A version is written in the transaction of its change and read only by pages.
"""

from collections.abc import Sequence

import msgspec

from heliograph.domain.setup.records import Layout, Template
from heliograph.domain.setup.snapshot import Row, Setup
from heliograph.storage.engine.database import Database, Tx

PAGE = 50
KEPT = 100  # newest versions kept per template or layout, to limit disk use
EVERY = 1 << 62  # greater than any version number


class _Versioned(msgspec.Struct):
    version: int = 1
    refused_reason: str = ""
    unfinished: bool = False


_KINDS = ("template", "layout")
_VERSION = msgspec.json.Decoder(_Versioned)


class VersionLine(msgspec.Struct, frozen=True):
    version: int
    person: str
    at: int | None  # None for versions older than this record


async def keep_versions(tx: Tx, rows: Sequence[Row], person: str, now: int, current: Setup) -> None:
    """Store a version of each changed template or layout and delete the oldest ones.

    All versions of a deleted template or layout are deleted.
    """
    read = [(row, _VERSION.decode(row.body)) for row in rows if row.kind in _KINDS and row.body is not None]
    kept = [
        (row.id, one.version, row.body, person, now + current.ahead(row.team or ""))
        for row, one in read
        if not one.refused_reason or one.unfinished  # a refusal is no new version
    ]
    if kept:
        await tx.run("keep_versions", versions=kept)
    ended = [(id_, version - KEPT) for id_, version, *_ in kept if version > KEPT]
    ended += [(row.id, EVERY) for row in rows if row.kind in _KINDS and row.body is None]
    for id_, version in ended:
        await tx.run("forget_versions", template=id_, version=version)


class Versions:
    """Reader of stored template and layout versions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, template: str, before: int | None = None) -> list[VersionLine]:
        """Return versions, newest first, plus one beyond a page if there are more."""
        given = {"template": template, "before": before or EVERY, "limit": PAGE + 1}
        return [VersionLine(*row) for row in await self._database.read(lambda tx: tx.run("list_versions", **given))]

    async def find(self, template: str, version: int) -> Template | None:
        body = await self._body(template, version)
        return msgspec.json.decode(body, type=Template) if body else None

    async def find_layout(self, layout: str, version: int) -> Layout | None:
        body = await self._body(layout, version)
        return msgspec.json.decode(body, type=Layout) if body else None

    async def _body(self, id_: str, version: int) -> str | None:
        rows = await self._database.read(lambda tx: tx.run("find_version", template=id_, version=version))
        return rows[0][0] if rows else None
