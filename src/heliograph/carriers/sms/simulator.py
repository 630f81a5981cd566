"""The simulator carrier for SMS: sends nothing; messages get the status `delivered` unless the number is magic."""

from heliograph.carriers.phone_simulator import PhoneScript, PhoneSimulator, simulated_detail
from heliograph.domain.delivery.content import SmsContent
from heliograph.domain.delivery.outcome import Refused, Report

DELIVERED = Report(status="delivered", detail=simulated_detail("DELIVRD", "delivered"))
FAILED = Report(status="failed", detail=simulated_detail("UNDELIV", "could not be delivered"))


class SmsSimulator(PhoneSimulator):
    script = PhoneScript(
        content=SmsContent,
        accepted_detail=simulated_detail("0", "queued"),
        refusals={
            "failed": Refused(detail=simulated_detail("21211", "invalid number")),
            "no_carrier": Refused(detail=simulated_detail("21612", "no route to this destination")),
        },
        reports_by_behaviour={"delivered": (DELIVERED,), "sent_then_failed": (FAILED,)},
    )
