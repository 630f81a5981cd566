"""The SMS carrier that sends nothing: magic numbers decide what happens, any other is delivered (contract 13)."""

from typing import Any

import msgspec

from heliograph.channels.carrier import Carrier, Parcel
from heliograph.rules.delivery.content import SmsContent
from heliograph.rules.delivery.magic import ANSWERS, PhoneBehaviour, phone_behaviour
from heliograph.rules.delivery.outcome import Accepted, DueReport, IncomingText, Outcome, Refused, Report


def _reply(code: str, text: str) -> dict[str, Any]:
    return {"carrier": "simulator", "code": code, "text": f"{text} (simulator)"}


TAKEN = _reply("0", "queued")
DELIVERED = Report(status="delivered", detail=_reply("DELIVRD", "delivered"))
FAILED = Report(status="failed", detail=_reply("UNDELIV", "could not be delivered"))

REFUSALS: dict[PhoneBehaviour, Refused] = {
    "failed": Refused(detail=_reply("21211", "invalid number")),
    "no_carrier": Refused(detail=_reply("21612", "no route to this destination")),
}
REPORTS: dict[PhoneBehaviour, tuple[Report, ...]] = {"sent_then_failed": (FAILED,)}


class SmsSimulator(Carrier):
    def __init__(self, step_ms: int) -> None:
        self._step_ms = step_ms

    async def hand_over(self, parcel: Parcel) -> Outcome:
        behaviour = phone_behaviour(parcel.address)
        if behaviour in REFUSALS:
            return REFUSALS[behaviour]
        reports = REPORTS.get(behaviour, (DELIVERED,)) if behaviour != "answers" else _answers(parcel)
        return Accepted(
            carrier_id=f"sim-{parcel.message_id}-{parcel.address}",
            detail=TAKEN,
            reports=[DueReport(self._step_ms, report) for report in reports],
        )


def _answers(parcel: Parcel) -> tuple[Report, ...]:
    """Answer once: what it is answered is left without an answer."""
    content = msgspec.json.decode(parcel.content, type=SmsContent)
    if content.is_answer:
        return (DELIVERED,)
    words = ANSWERS[parcel.address]
    text = IncomingText(id=f"sim-{parcel.message_id}", sender=parcel.address, to=content.sender_id, text=words)
    return (*(DELIVERED,), Report(status="delivered", detail=_reply("answer", f"answers: {words}"), text=text))
