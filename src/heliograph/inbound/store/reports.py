"""Store of reports about sent messages; early ones wait until the delivery attempt is recorded."""

from collections.abc import Sequence

from heliograph.domain.delivery.outcome import CarrierReport, ProviderReport, Report
from heliograph.inbound.store.provider_reports import Taken, report_by_provider
from heliograph.runtime.clock import Clock
from heliograph.storage import outcomes
from heliograph.storage.engine.database import Database
from heliograph.storage.events import Publisher

REPLAY_ID_MAX = 200  # characters


class Reports:
    def __init__(self, database: Database, clock: Clock, publisher: Publisher) -> None:
        self._database = database
        self._clock = clock
        self._publisher = publisher

    async def by_carrier(
        self, carrier: str, reports: Sequence[CarrierReport], skip_known: bool = False
    ) -> Sequence[bool | Exception]:
        """Store reports; False for an id unknown to this carrier: its report waits a minute for the delivery attempt.

        With `skip_known`, a report that is already stored verbatim is not written again.
        """
        at, publisher = self._clock.now(), self._publisher
        return await self._database.write(
            lambda tx: outcomes.report_by_carrier(
                tx, carrier, reports, at=at, publisher=publisher, early=True, skip_known=skip_known
            )
        )

    async def by_provider(
        self, carrier: str, told: Sequence[ProviderReport], *, replay_id: str = ""
    ) -> Sequence[Taken]:
        """Store reports and return the result of each. `replay_id`: identical when a callback is repeated."""
        at, publisher = self._clock.now(), self._publisher
        return await self._database.write(
            lambda tx: report_by_provider(
                tx, carrier, told, replay_id=replay_id[:REPLAY_ID_MAX], at=at, publisher=publisher
            )
        )

    async def by_recipient(self, message_id: str, position: int, report: Report) -> None:
        """Store a report from a returned mail; it waits if the delivery attempt is not recorded yet."""
        at, publisher = self._clock.now(), self._publisher
        await self._database.write(
            lambda tx: outcomes.report_returned(tx, message_id, position, report, at=at, publisher=publisher)
        )

    async def address_of(self, message_id: str, position: int) -> str | None:
        """Return the normalised address of a recipient; None if not found."""
        rows = await self._database.read(lambda tx: tx.run("place_of", id=message_id, position=position))
        return str(rows[0][2]) if rows else None

    async def apply_early(self) -> None:
        at, publisher = self._clock.now(), self._publisher
        if await self._database.read(lambda tx: outcomes.any_early(tx, at)):
            await self._database.write(lambda tx: outcomes.apply_early(tx, at=at, publisher=publisher))
