"""The WhatsApp carrier that sends nothing: magic numbers decide what happens, any other is read (contract 13)."""

from typing import Any

from heliograph.channels.carrier import Carrier, Parcel
from heliograph.rules.magic import PhoneBehaviour, phone_behaviour
from heliograph.rules.outcome import Accepted, DueReport, Outcome, Refused, Report


def _reply(code: str, text: str) -> dict[str, Any]:
    return {"carrier": "simulator", "code": code, "text": f"{text} (simulator)"}


TAKEN = _reply("accepted", "accepted")
DELIVERED = Report(status="delivered", detail=_reply("delivered", "delivered"))
READ = Report(status="read", detail=_reply("read", "read"))
FAILED = Report(status="failed", detail=_reply("131026", "message undeliverable"))

REFUSALS: dict[PhoneBehaviour, Refused] = {
    "failed": Refused(detail=_reply("131009", "invalid number")),
    "no_carrier": Refused(detail=_reply("131030", "no route to this destination")),
}
REPORTS: dict[PhoneBehaviour, tuple[Report, ...]] = {
    "delivered": (DELIVERED, READ),
    "delivered_unread": (DELIVERED,),
    "read_undelivered": (READ,),
    "sent_then_failed": (FAILED,),
}


class WhatsappSimulator(Carrier):
    def __init__(self, step_ms: int) -> None:
        self._step_ms = step_ms

    async def hand_over(self, parcel: Parcel) -> Outcome:
        behaviour = phone_behaviour(parcel.address)
        if behaviour in REFUSALS:
            return REFUSALS[behaviour]
        return Accepted(
            carrier_id=f"sim-{parcel.message_id}-{parcel.address}",
            detail=TAKEN,
            reports=[DueReport(self._step_ms, report) for report in REPORTS[behaviour]],
        )
