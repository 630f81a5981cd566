"""Memory budget for reads, of the same kind as for request bodies. Large reads are processed in threads."""

from heliograph.domain.limits import IN_THREAD
from heliograph.runtime.threads import LOOKING
from heliograph.web.budget import ByteBudget, HeldBody
from heliograph.web.request import ClientGone, Request

COPIES = 4  # copies in memory during a read: stored, decoded, converted, encoded


class Reads:
    """Memory budget of reads; separate from request bodies, so that slow readers do not block sends."""

    def __init__(self, budget: ByteBudget | None = None) -> None:
        self._budget = budget or ByteBudget()

    async def hold(self, request: Request, team: str, octets: int) -> None:
        """Wait until `octets` bytes may be read; reserves memory for this request until its response is written."""
        if octets <= IN_THREAD:
            return
        size = min(COPIES * octets, self._budget.share)
        if request.read:  # it already holds a reservation: waiting for more could deadlock
            self._budget.give(request.read[1], size)
            return
        request.read = self._budget, HeldBody(team, size)
        await self._budget.take(request.read[1], size)
        if request.gone:
            raise ClientGone


work = LOOKING.run_large
