"""The simulator carrier for WhatsApp: sends nothing; messages to numbers that are not magic are read."""

from heliograph.carriers.phone_simulator import PhoneScript, PhoneSimulator, simulated
from heliograph.domain.delivery.content import WhatsappContent
from heliograph.domain.delivery.outcome import Refused, Report

DELIVERED = Report(status="delivered", detail=simulated("delivered", "delivered"))
READ = Report(status="read", detail=simulated("read", "read"))
FAILED = Report(status="failed", detail=simulated("131026", "message undeliverable"))


class WhatsappSimulator(PhoneSimulator):
    script = PhoneScript(
        content=WhatsappContent,
        taken=simulated("accepted", "accepted"),
        refused={
            "failed": Refused(detail=simulated("131009", "invalid number")),
            "no_carrier": Refused(detail=simulated("131030", "no route to this destination")),
        },
        later={
            "delivered": (DELIVERED, READ),
            "delivered_unread": (DELIVERED,),
            "read_undelivered": (READ,),
            "sent_then_failed": (FAILED,),
        },
    )
