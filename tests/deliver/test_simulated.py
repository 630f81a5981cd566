"""Outcomes of simulators are marked, at the send and later; those of carriers are not."""

from typing import Any

import msgspec
import pytest

from heliograph.deliver.dispatch import to_update
from heliograph.domain.delivery.outcome import Accepted, Deferred, DueReport, Outcome, Refused, Report
from heliograph.domain.delivery.routing import simulated_channels
from heliograph.domain.events import NEXT_AT
from heliograph.domain.setup.records import CarrierRecord
from heliograph.storage.outbox import Claim
from heliograph.storage.outcomes import ClaimToken, RecipientUpdate

SAID = {"text": "250 OK"}
CLAIM = Claim(
    key=1,
    epoch=1,
    team=1,
    message=1,
    position=0,
    message_id="eml_1",
    channel="email",
    sandbox=False,
    country=None,
    address="ada@example.com",
    given_address="ada@example.com",
    content=b"",
    reports=(DueReport(1, Report(status="delivered")),),
    first_at=1,
    due_at=1,
    attempt=0,
    deferrals={},
    uncertain_carrier=None,
    queue="email",
)


@pytest.mark.parametrize("outcome", [Accepted(detail=SAID), Refused(detail=SAID), Deferred(detail=SAID)])
@pytest.mark.parametrize(("kind", "mark"), [("simulator", {"simulated": True}), ("smtp", {})])
def test_carrier_answer_is_marked_simulated_for_simulators_only(
    outcome: Outcome, kind: str, mark: dict[str, Any]
) -> None:
    carrier = CarrierRecord(id="c", channel="email", kind=kind)
    detail = to_update(CLAIM, carrier, outcome, 1, lambda: 0.0).detail
    detail.pop(NEXT_AT, None)
    assert detail == SAID | mark


def test_scheduled_report_is_marked_simulated() -> None:
    assert RecipientUpdate.from_reports(ClaimToken(1, 1), 1, 0, CLAIM.reports, "email", 1).detail == {"simulated": True}


REAL = CarrierRecord(id="real", channel="sms", kind="smpp")
SIM = CarrierRecord(id="sim", channel="sms", kind="simulator")


@pytest.mark.parametrize(
    ("carriers", "expected"),
    [
        ([], True),
        ([SIM], True),
        ([REAL], False),
        ([SIM, REAL], False),
        ([SIM, msgspec.structs.replace(REAL, enabled=False)], True),
        ([msgspec.structs.replace(REAL, enabled=False)], False),  # refused, not simulated
    ],
)
def test_channel_is_simulated_without_a_real_carrier(carriers: list[CarrierRecord], expected: bool) -> None:
    assert ("sms" in simulated_channels(carriers)) is expected
