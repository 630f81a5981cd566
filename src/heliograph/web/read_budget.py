"""Memory budget for responses that read much data. Large reads run in threads."""

from heliograph.domain.limits import PARSE_IN_THREAD_MIN
from heliograph.runtime.threads import READ_POOL
from heliograph.web.budget import ByteBudget, Reservation
from heliograph.web.request import ClientDisconnected, Request

COPIES_PER_READ = 4  # copies of the data in memory during a read: stored, decoded, converted, encoded


class ReadBudget:
    """Memory budget for reads, separate from that for request bodies, so that slow readers do not block sends."""

    def __init__(self, budget: ByteBudget | None = None) -> None:
        self._budget = budget or ByteBudget()

    async def reserve(self, request: Request, team: str, octets: int) -> None:
        """Wait until `octets` bytes are available; reserve them until the response is written."""
        if octets <= PARSE_IN_THREAD_MIN:
            return
        size = min(COPIES_PER_READ * octets, self._budget.share)
        if request.response_reservation:  # waiting while holding a reservation could deadlock
            self._budget.reserve_now(request.response_reservation[1], size)
            return
        request.response_reservation = self._budget, Reservation(team, size)
        await self._budget.reserve(request.response_reservation[1], size)
        if request.gone:
            raise ClientDisconnected


run_large = READ_POOL.run_large
