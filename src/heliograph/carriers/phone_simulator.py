"""Base of the SMS and WhatsApp simulators: magic phone numbers select the outcome (contract 13)."""

from typing import Any

import msgspec

from heliograph.carriers.contract import Carrier, Parcel
from heliograph.domain.delivery.content import SmsContent, WhatsappContent
from heliograph.domain.delivery.magic_recipients import ANSWERS, PhoneBehaviour, phone_behaviour
from heliograph.domain.delivery.outcome import Accepted, DueReport, IncomingText, Outcome, Refused, Report


def simulated(code: str, text: str) -> dict[str, Any]:
    """Build the `detail` of a simulated outcome or report."""
    return {"carrier": "simulator", "code": code, "text": f"{text} (simulator)"}


class PhoneScript(msgspec.Struct, frozen=True, kw_only=True):
    """The outcomes and reports that a channel's simulator returns for each behaviour."""

    content: type[SmsContent] | type[WhatsappContent]
    taken: dict[str, Any]
    refused: dict[PhoneBehaviour, Refused]
    later: dict[PhoneBehaviour, tuple[Report, ...]]  # a behaviour without an entry uses `delivered`


class PhoneSimulator(Carrier):
    """A carrier that sends nothing and returns scripted outcomes."""

    script: PhoneScript

    def __init__(self, step_ms: int) -> None:
        self._step_ms = step_ms

    async def hand_over(self, parcel: Parcel) -> Outcome:
        behaviour = phone_behaviour(parcel.address)
        if refused := self.script.refused.get(behaviour):
            return refused
        reports = self.script.later.get(behaviour, self.script.later["delivered"])
        if behaviour == "answers":
            reports += self._answers(parcel)
        return Accepted(
            carrier_id=f"sim-{parcel.message_id}-{parcel.address}",
            detail=self.script.taken,
            reports=[DueReport(self._step_ms, report) for report in reports],
        )

    def _answers(self, parcel: Parcel) -> tuple[Report, ...]:
        """Return the report with the recipient's simulated reply; empty if the message is itself a reply."""
        content, words = msgspec.json.decode(parcel.content, type=self.script.content), ANSWERS[parcel.address]
        if content.is_answer:
            return ()
        to = content.sender_id if isinstance(content, SmsContent) else "simulator"
        text = IncomingText(id=f"sim-{parcel.message_id}", sender=parcel.address, to=to, text=words)
        last = self.script.later["delivered"][-1]
        return (Report(status=last.status, detail=simulated("answer", f"answers: {words}"), text=text),)
