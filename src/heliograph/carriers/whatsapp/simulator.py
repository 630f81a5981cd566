"""The simulator carrier for WhatsApp: sends nothing; messages get the status `read` unless the number is magic."""

from heliograph.carriers.phone_simulator import PhoneScript, PhoneSimulator, simulated_detail
from heliograph.domain.delivery.content import WhatsappContent
from heliograph.domain.delivery.outcome import Refused, Report

DELIVERED = Report(status="delivered", detail=simulated_detail("delivered", "delivered"))
READ = Report(status="read", detail=simulated_detail("read", "read"))
FAILED = Report(status="failed", detail=simulated_detail("131026", "message undeliverable"))


class WhatsappSimulator(PhoneSimulator):
    script = PhoneScript(
        content=WhatsappContent,
        accepted_detail=simulated_detail("accepted", "accepted"),
        refusals={
            "failed": Refused(detail=simulated_detail("131009", "invalid number")),
            "no_carrier": Refused(detail=simulated_detail("131030", "no route to this destination")),
        },
        reports_by_behaviour={
            "delivered": (DELIVERED, READ),
            "delivered_unread": (DELIVERED,),
            "read_undelivered": (READ,),
            "sent_then_failed": (FAILED,),
        },
    )
