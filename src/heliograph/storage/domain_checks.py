"""The last DNS results of sending domains, and the times of their next checks, shared by all processes."""

from collections.abc import Iterable
from typing import Any

import msgspec

from heliograph.domain.setup.domain_records import Record, Verdict
from heliograph.storage.engine.database import Database


class StoredVerdict(msgspec.Struct, frozen=True, kw_only=True):
    record: Record
    verdict: Verdict
    at: int


class DomainCheck(msgspec.Struct, frozen=True, kw_only=True):
    domain: str
    checked_at: int | None = None
    since: int | None = None  # time of the change that started frequent checks
    next_at: int | None = None  # time of the next check; None: together with the next regular check of all domains
    zone: str = ""  # DNS zone that contains the domain
    records: tuple[StoredVerdict, ...] = ()


class DomainChecks:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def find_many(self, domains: Iterable[str]) -> dict[str, DomainCheck]:
        """Return domain id → its last check; domains that were never checked or scheduled are missing."""
        domain_rows = [(domain,) for domain in domains]
        rows = await self._database.read(lambda tx: tx.run("domain_checks", domains=domain_rows)) if domain_rows else []
        return {row[0]: _check_from_row(row) for row in rows}

    async def get(self, domain: str) -> DomainCheck:
        return (await self.find_many([domain])).get(domain) or DomainCheck(domain=domain)

    async def save(self, check: DomainCheck) -> None:
        params = msgspec.structs.asdict(check) | {"records": msgspec.json.encode(check.records).decode()}
        await self._database.write(lambda tx: tx.run("save_domain_check", **params))

    async def schedule(self, domain: str, now: int) -> None:
        """Schedule an immediate check of the domain, followed by frequent checks for a limited time."""
        await self._database.write(lambda tx: tx.run("schedule_domain_check", domain=domain, now=now))

    async def claim(self, now: int, until: int, limit: int) -> dict[str, int]:
        """Claim up to `limit` due domains, which other processes cannot claim before `until`.

        Returns domain id → time of the domain's last change.
        """
        rows = await self._database.write(lambda tx: tx.run("claim_domain_checks", now=now, until=until, most=limit))
        return {domain: since or now for domain, since in rows}

    async def delete(self, domain: str) -> None:
        await self._database.write(lambda tx: tx.run("delete_domain_check", domain=domain))


def _check_from_row(row: Any) -> DomainCheck:
    domain, checked_at, since, next_at, zone, records = row
    return DomainCheck(
        domain=domain,
        checked_at=checked_at,
        since=since,
        next_at=next_at,
        zone=zone,
        records=msgspec.json.decode(records, type=tuple[StoredVerdict, ...]),
    )
