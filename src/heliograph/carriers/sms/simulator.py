"""The simulator carrier for SMS: sends nothing; messages to numbers that are not magic are delivered."""

from heliograph.carriers.phone_simulator import PhoneScript, PhoneSimulator, simulated
from heliograph.domain.delivery.content import SmsContent
from heliograph.domain.delivery.outcome import Refused, Report

DELIVERED = Report(status="delivered", detail=simulated("DELIVRD", "delivered"))
FAILED = Report(status="failed", detail=simulated("UNDELIV", "could not be delivered"))


class SmsSimulator(PhoneSimulator):
    script = PhoneScript(
        content=SmsContent,
        taken=simulated("0", "queued"),
        refused={
            "failed": Refused(detail=simulated("21211", "invalid number")),
            "no_carrier": Refused(detail=simulated("21612", "no route to this destination")),
        },
        later={"delivered": (DELIVERED,), "sent_then_failed": (FAILED,)},
    )
