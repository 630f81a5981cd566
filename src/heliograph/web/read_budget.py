"""Memory budget for reads, of the same kind as for request bodies. Large reads are processed in threads."""

from heliograph.domain.limits import PARSE_IN_THREAD_MIN
from heliograph.runtime.threads import READ_POOL
from heliograph.web.budget import ByteBudget, Reservation
from heliograph.web.request import ClientDisconnected, Request

COPIES_PER_READ = 4  # copies of the data in memory during a read: stored, decoded, converted, encoded


class ReadBudget:
    """Memory budget of reads; separate from request bodies, so that slow readers do not block sends."""

    def __init__(self, budget: ByteBudget | None = None) -> None:
        self._budget = budget or ByteBudget()

    async def reserve(self, request: Request, team: str, octets: int) -> None:
        """Reserve memory for reading `octets` bytes, waiting if necessary; released after the response is written."""
        if octets <= PARSE_IN_THREAD_MIN:
            return
        size = min(COPIES_PER_READ * octets, self._budget.share)
        if request.response_reservation:  # it already has a reservation: waiting for more could deadlock
            self._budget.reserve_now(request.response_reservation[1], size)
            return
        request.response_reservation = self._budget, Reservation(team, size)
        await self._budget.reserve(request.response_reservation[1], size)
        if request.gone:
            raise ClientDisconnected


run_large = READ_POOL.run_large
