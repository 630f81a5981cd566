"""The email carrier that sends nothing: the local part of the address decides what happens (contract 13)."""

from typing import Any

from heliograph.channels.carrier import Carrier, Parcel
from heliograph.rules.magic import Behaviour, behaviour_of, is_held_back
from heliograph.rules.outcome import Accepted, Deferred, DueReport, Outcome, Refused, Report, own


def _reply(code: str, enhanced: str, text: str) -> dict[str, Any]:
    words = f"{code} {enhanced} {text} (simulator)"
    return {"carrier": "simulator", "code": code, "enhanced": enhanced, "text": words}


TAKEN = _reply("250", "2.0.0", "Queued")
ARRIVED = _reply("250", "2.1.5", "Delivered")
NO_SUCH_USER = _reply("550", "5.1.1", "No such user")
REJECTED = _reply("554", "5.7.1", "Message rejected")
BUSY = _reply("451", "4.7.1", "Try again later")
HELD_BACK = own("suppressed", "the address stands for a suppressed one (simulator)")
ABUSE = {"carrier": "simulator", "text": "feedback report: abuse (simulator)"}

DELIVERED = Report(status="delivered", detail=ARRIVED)
BOUNCED = Report(status="bounced", detail=NO_SUCH_USER, suppress="bounce")
COMPLAINED = Report(status="complained", detail=ABUSE, suppress="complaint")

REFUSALS: dict[Behaviour, Refused] = {
    "bounced": Refused(detail=NO_SUCH_USER, bounced=True),
    "failed": Refused(detail=REJECTED),
}
DEFERRALS: dict[Behaviour, int] = {"softbounce": 2, "delayed": 2}
REPORTS: dict[Behaviour, tuple[Report, ...]] = {
    "delivered": (DELIVERED,),
    "asyncbounce": (DELIVERED, BOUNCED),
    "complained": (DELIVERED, COMPLAINED),
    "softbounce": (DELIVERED,),
    "delayed": (DELIVERED,),
    "suppressed": (DELIVERED,),  # refused at accept; only addresses of other domains get here
}


class EmailSimulator(Carrier):
    def __init__(self, step_ms: int) -> None:
        self._step_ms = step_ms

    async def hand_over(self, parcel: Parcel) -> Outcome:
        behaviour = behaviour_of(parcel.address)
        if is_held_back(parcel.address):
            return Refused(detail=HELD_BACK)
        if behaviour in REFUSALS:
            return REFUSALS[behaviour]
        if parcel.attempt < DEFERRALS.get(behaviour, 0):
            delayed = behaviour == "delayed" and parcel.attempt == 1
            return Deferred(detail=BUSY, retry_after_ms=self._step_ms, delayed=delayed)
        return Accepted(
            carrier_id=f"sim-{parcel.message_id}-{parcel.address}",
            detail=TAKEN,
            reports=[DueReport(self._step_ms, report) for report in REPORTS[behaviour]],
        )
