"""Base of the SMS and WhatsApp simulators: magic phone numbers select the outcome (contract 13)."""

from typing import Any

import msgspec

from heliograph.carriers.contract import Carrier, OutboundMessage
from heliograph.domain.delivery.content import SmsContent, WhatsappContent
from heliograph.domain.delivery.magic_recipients import REPLY_BY_PHONE, PhoneBehaviour, phone_behaviour
from heliograph.domain.delivery.outcome import Accepted, DueReport, IncomingText, Outcome, Refused, Report


def simulated_detail(code: str, text: str) -> dict[str, Any]:
    """Build the `detail` of a simulated outcome or report."""
    return {"carrier": "simulator", "code": code, "text": f"{text} (simulator)"}


class PhoneScript(msgspec.Struct, frozen=True, kw_only=True):
    """The outcomes and reports that a channel's simulator returns for each behaviour."""

    content: type[SmsContent] | type[WhatsappContent]
    accepted_detail: dict[str, Any]
    refusals: dict[PhoneBehaviour, Refused]
    reports_by_behaviour: dict[PhoneBehaviour, tuple[Report, ...]]  # a missing behaviour has the reports of `delivered`


class PhoneSimulator(Carrier):
    """A carrier that sends nothing and returns scripted outcomes."""

    script: PhoneScript

    def __init__(self, step_ms: int) -> None:
        self._step_ms = step_ms

    async def send_message(self, message: OutboundMessage) -> Outcome:
        behaviour = phone_behaviour(message.address)
        if refused := self.script.refusals.get(behaviour):
            return refused
        reports = self.script.reports_by_behaviour.get(behaviour, self.script.reports_by_behaviour["delivered"])
        if behaviour == "answers":
            reports += self._report_with_reply(message)
        return Accepted(
            carrier_id=f"sim-{message.message_id}-{message.address}",
            detail=self.script.accepted_detail,
            reports=[DueReport(self._step_ms, report) for report in reports],
        )

    def _report_with_reply(self, message: OutboundMessage) -> tuple[Report, ...]:
        """Return a report with the recipient's simulated reply; no report if the message is itself a reply."""
        content = msgspec.json.decode(message.content, type=self.script.content)
        if content.is_answer:
            return ()
        reply_text = REPLY_BY_PHONE[message.address]
        to = content.sender_id if isinstance(content, SmsContent) else "simulator"
        incoming = IncomingText(id=f"sim-{message.message_id}", sender=message.address, to=to, text=reply_text)
        status = self.script.reports_by_behaviour["delivered"][-1].status
        return (Report(status=status, detail=simulated_detail("answer", f"answers: {reply_text}"), text=incoming),)
