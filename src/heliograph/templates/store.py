"""Store of template and layout versions, each written in the transaction of its change. Only pages read versions."""

from collections.abc import Sequence

import msgspec

from heliograph.domain.setup.records import Layout, Template
from heliograph.domain.setup.snapshot import Row, Setup
from heliograph.storage.engine.database import Database, Tx

PAGE_SIZE = 50
VERSIONS_MAX = 100  # maximum stored versions per template or layout; older ones are deleted
ABOVE_ALL_VERSIONS = 1 << 62  # greater than any version number: all versions are below it


class _VersionFields(msgspec.Struct):
    version: int = 1
    refused_reason: str = ""
    unfinished: bool = False


_VERSIONED_KINDS = ("template", "layout")
_VERSION_DECODER = msgspec.json.Decoder(_VersionFields)


class VersionRow(msgspec.Struct, frozen=True):
    version: int
    person: str
    at: int | None  # None for versions written before this column existed


async def store_versions(tx: Tx, rows: Sequence[Row], person: str, now: int, current: Setup) -> None:
    """Store a version of each changed template or layout, and delete its oldest versions above VERSIONS_MAX.

    All versions of a deleted template or layout are deleted.
    """
    changed = [
        (row, _VERSION_DECODER.decode(row.body))
        for row in rows
        if row.kind in _VERSIONED_KINDS and row.body is not None
    ]
    versions = [
        (row.id, fields.version, row.body, person, now + current.clock_offset(row.team or ""))
        for row, fields in changed
        if not fields.refused_reason or fields.unfinished  # a refusal creates no new version
    ]
    if versions:
        await tx.run("save_versions", versions=versions)
    deletions = [(id_, version - VERSIONS_MAX) for id_, version, *_ in versions if version > VERSIONS_MAX]
    deletions += [(row.id, ABOVE_ALL_VERSIONS) for row in rows if row.kind in _VERSIONED_KINDS and row.body is None]
    for id_, version in deletions:
        await tx.run("delete_versions", template=id_, version=version)


class VersionReader:
    """Reader of stored template and layout versions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, template: str, before: int | None = None) -> list[VersionRow]:
        """Return versions older than `before`, newest first: up to PAGE_SIZE, plus one more if another page follows."""
        params = {"template": template, "before": before or ABOVE_ALL_VERSIONS, "limit": PAGE_SIZE + 1}
        return [VersionRow(*row) for row in await self._database.read(lambda tx: tx.run("list_versions", **params))]

    async def find_template(self, template: str, version: int) -> Template | None:
        body = await self._body(template, version)
        return msgspec.json.decode(body, type=Template) if body else None

    async def find_layout(self, layout: str, version: int) -> Layout | None:
        body = await self._body(layout, version)
        return msgspec.json.decode(body, type=Layout) if body else None

    async def _body(self, id_: str, version: int) -> str | None:
        rows = await self._database.read(lambda tx: tx.run("find_version", template=id_, version=version))
        return rows[0][0] if rows else None
