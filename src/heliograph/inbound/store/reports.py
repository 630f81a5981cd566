"""Store of reports about sent messages. A report is stored even if its delivery attempt is not recorded yet."""

from collections.abc import Sequence

from heliograph.domain.delivery.outcome import CarrierReport, ProviderReport, Report
from heliograph.inbound.store.provider_reports import ReportResult, store_provider_reports
from heliograph.runtime.clock import Clock
from heliograph.storage import outcomes
from heliograph.storage.engine.database import Database
from heliograph.storage.events import Publisher

REPLAY_ID_MAX = 200  # maximum characters of the id of a callback, by which repetitions are detected


class ReportStore:
    """Store of delivery reports, bounces and complaints."""

    def __init__(self, database: Database, clock: Clock, publisher: Publisher) -> None:
        self._database = database
        self._clock = clock
        self._publisher = publisher

    async def store_by_carrier(
        self, carrier: str, reports: Sequence[CarrierReport], skip_known: bool = False
    ) -> Sequence[bool | Exception]:
        """Store reports. Return for each report whether its message id is known, or the exception that it caused.

        A report with an unknown id is stored for a minute, because the send may not be recorded yet. `skip_known`:
        ignore a report that is identical to a stored one.
        """
        now, publisher = self._clock.now(), self._publisher
        return await self._database.write(
            lambda tx: outcomes.record_carrier_reports(
                tx, carrier, reports, at=now, publisher=publisher, store_unknown=True, skip_known=skip_known
            )
        )

    async def store_by_provider(
        self, carrier: str, reports: Sequence[ProviderReport], *, replay_id: str = ""
    ) -> Sequence[ReportResult]:
        """Store reports and return the result of each. `replay_id`: equal for all repetitions of the same callback."""
        now, publisher = self._clock.now(), self._publisher
        return await self._database.write(
            lambda tx: store_provider_reports(
                tx, carrier, reports, replay_id=replay_id[:REPLAY_ID_MAX], at=now, publisher=publisher
            )
        )

    async def store_by_recipient(self, message_id: str, position: int, report: Report) -> None:
        """Store the report of a bounced mail, even if the send is not recorded yet."""
        now, publisher = self._clock.now(), self._publisher
        await self._database.write(
            lambda tx: outcomes.record_bounce(tx, message_id, position, report, at=now, publisher=publisher)
        )

    async def recipient_address(self, message_id: str, position: int) -> str | None:
        """Return the normalised address of a recipient; None if not found."""
        rows = await self._database.read(lambda tx: tx.run("find_recipient", id=message_id, position=position))
        return str(rows[0][2]) if rows else None

    async def apply_early_reports(self) -> None:
        now, publisher = self._clock.now(), self._publisher
        if await self._database.read(lambda tx: outcomes.has_early_reports(tx, now)):
            await self._database.write(lambda tx: outcomes.apply_early_reports(tx, at=now, publisher=publisher))
