"""What a read holds: counted against a byte budget as a body is. Large work for it is done off the event loop."""

from heliograph.domain.limits import IN_THREAD
from heliograph.runtime.threads import LOOKING
from heliograph.web.budget import ByteBudget, HeldBody
from heliograph.web.request import ClientGone, Request

COPIES = 4  # of what is read: as stored, decoded, shown, encoded


class Reads:
    """The budget is one of its own, so that clients who read slowly take no room from what is sent."""

    def __init__(self, budget: ByteBudget | None = None) -> None:
        self._budget = budget or ByteBudget()

    async def hold(self, request: Request, team: str, octets: int) -> None:
        """Wait until so much may be read for this request, which holds it until its answer is written."""
        if octets <= IN_THREAD:
            return
        size = min(COPIES * octets, self._budget.share)
        if request.read:  # whoever has begun goes on: two that wait for each other would never end
            self._budget.give(request.read[1], size)
            return
        request.read = self._budget, HeldBody(team, size)
        await self._budget.take(request.read[1], size)
        if request.gone:
            raise ClientGone


work = LOOKING.run_large
