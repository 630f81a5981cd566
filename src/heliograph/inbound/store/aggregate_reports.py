"""Store of DMARC and TLS reports on sending domains, by domain, day and source."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from heliograph.inbound.policy.aggregate_report import DmarcSource
from heliograph.runtime.clock import Clock
from heliograph.storage.engine.database import Database, Tx

BATCH = 500  # rows per transaction; small, because other writers must wait on SQLite
SOURCES_SHOWN_MAX = 1000


class ReportKey(msgspec.Struct, frozen=True, kw_only=True):
    """Identifies the part of a DMARC or TLS report about one of our domains."""

    domain: str  # id of the domain (dom_…)
    team: int  # 0 if the domain belongs to the platform
    day: int  # days since 1970
    digest: str  # hash of the report's content, to recognise repeats


class DmarcTotals(msgspec.Struct, frozen=True, kw_only=True):
    total: int
    aligned: int
    sources: list[DmarcSource]  # at most SOURCES_SHOWN_MAX, most mails first


class AggregateReportStore:
    """Store of DMARC and TLS reports about all domains."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def add_dmarc(self, key: ReportKey, sources: Iterable[DmarcSource]) -> bool:
        """Store a DMARC report; return False if it is already stored. `sources`: one per source address."""
        now = self._clock.now()
        rows = (
            (
                *(key.domain, key.day, source.address, key.digest, key.team, int(source.known)),
                *(source.total, source.aligned, source.dkim, source.spf, now),
            )
            for source in sources
        )
        return await self._add(key, now, "insert_dmarc_sources", "sources", rows)

    async def add_tls(self, key: ReportKey, sessions: dict[str, int]) -> bool:
        """Store a TLS report; return False if it is already stored. `sessions`: result → number of sessions."""
        now = self._clock.now()
        rows = ((key.domain, key.day, type_, key.digest, key.team, count, now) for type_, count in sessions.items())
        return await self._add(key, now, "insert_tls_results", "results", rows)

    async def _add(self, key: ReportKey, now: int, query: str, row_table: str, rows: Iterable[tuple[Any, ...]]) -> bool:
        """Insert a report's rows in batches, then mark the report as stored.

        If this is interrupted, the missing rows are inserted when the same report is received again.
        """
        domain, digest = key.domain, key.digest
        if await self._database.read(lambda tx: tx.run("find_aggregate_report", domain=domain, digest=digest)):
            return False
        remaining_rows = iter(rows)
        while batch := list(islice(remaining_rows, BATCH)):
            await self._database.write(partial(_run, query=query, params={row_table: batch}))
        marker = {"domain": domain, "digest": digest, "team": key.team, "now": now}
        await self._database.write(partial(_run, query="insert_aggregate_report", params=marker))
        return True

    async def dmarc_totals(self, domain: str, first_day: int, last_day: int) -> DmarcTotals:
        """Return the numbers of mails reported for a domain (id) from the first to the last day."""
        days: dict[str, Any] = {"domain": domain, "first": first_day, "last": last_day}

        async def read(tx: Tx) -> tuple[Sequence[Any], Sequence[Any]]:
            return (
                (await tx.run("dmarc_totals", **days))[0],
                await tx.run("dmarc_sources", limit=SOURCES_SHOWN_MAX, **days),
            )

        (all_mails, aligned_mails), rows = await self._database.read_standby(read)
        sources = [
            DmarcSource(
                domain=domain, address=address, known=bool(known), total=total, aligned=aligned, dkim=dkim, spf=spf
            )
            for address, known, total, aligned, dkim, spf in rows
        ]
        return DmarcTotals(total=all_mails, aligned=aligned_mails, sources=sources)

    async def tls_sessions(self, domain: str, first_day: int, last_day: int) -> dict[str, int]:
        """Return TLS result → number of sessions, highest number first."""
        days: dict[str, Any] = {"domain": domain, "first": first_day, "last": last_day}
        return dict(await self._database.read_standby(lambda tx: tx.run("tls_results", **days)))

    async def delete(self, domain: str) -> None:
        """Delete all reports about a domain, in batches."""
        params: dict[str, Any] = {"domain": domain, "limit": BATCH}
        for query in ("delete_dmarc_sources", "delete_tls_results", "delete_aggregate_reports"):
            while len(await self._database.write(partial(_run, query=query, params=params))) == BATCH:
                continue


async def _run(tx: Tx, query: str, params: dict[str, Any]) -> list[Any]:
    return await tx.run(query, **params)
