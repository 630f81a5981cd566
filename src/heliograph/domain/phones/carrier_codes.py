"""Maps error codes of SMS and WhatsApp carriers to the causes explained in `texts/explain.py`.

The effect of a code on delivery, and its text, are defined by the carrier implementations.
"""

from collections.abc import Mapping
from typing import Any

from heliograph.domain.delivery.outcome import LocalReason
from heliograph.domain.phones.opt_out import OptOutReason


def _cause_by_code(**causes: str) -> dict[str, str]:
    """Return code → cause. Each argument is a cause, followed by its codes."""
    return {code: cause for cause, codes in causes.items() for code in codes.split()}


def _cause_by_hex_code(**causes: str) -> dict[str, str]:
    """Return command_status → cause; a code written as `0b` is the status 0x0000000b."""
    return {f"0x{code:0>8}": cause for code, cause in _cause_by_code(**causes).items()}


CAUSE_BY_CODE: dict[str, dict[str, str]] = {
    "smpp": _cause_by_hex_code(
        form="01 02 06 07 0c 13 15 33 34 40 42 43 44 54 55 61 62 63 67 c0 c1 c2 c3 c4",
        account="03 04 05 0d 0e 0f 53",
        carrier_trouble="08 ff 64",
        sender="0a 48 49",
        bad_number="0b 50 51",
        canceled="11",
        carrier_limit="14 58",
        rejected="45 65 66 fe",
    ),
    "twilio": _cause_by_code(
        account="10001 20003 20005 20008 20403 20404 21609 21705 30002",
        carrier_limit="14107 20429 21611 30001 30022 30023 30027",
        carrier_trouble="20500 20503 30410",
        bad_number="21211 21217",
        sender="21212 21601 21603 21606 21659 21660 21703 21704 21712 30024 30032 30034",
        phone_off="21214 30003",
        same_number="21266",
        no_route="21408 21612 30010",
        form="21602 21617",
        test_number="21608",
        opted_out="21610",
        landline="21614 21635 30006",
        filtered="21656 30004 30007 30450 30453",
        gone_number="30005",
        unexplained="30008",
        given_up="30036",
        canceled="canceled",
        rejected="undelivered failed",
    ),
    "cloud_api": _cause_by_code(
        account="0 3 10 33 190 200 368 131005 131031 131037 131042 131045 133000 133006 133010",
        carrier_trouble="1 2 131000 131016 131057 133004 133015",
        carrier_limit="4 80007 130429 131048 131056 132069",
        template="100 131008 131009 132000 132001 132005 132007 132012 132015 132016 132018 132068 135000",
        held_back="130472 131049",
        no_route="130497",
        same_number="131021",
        no_whatsapp="131026",
        test_number="131030",
        window="131047",
        opted_out="131050",
        form="131051 131052 131053",
        rejected="failed",
    ),
    # Our simulators use the codes of the carriers that they simulate.
    "simulator": _cause_by_code(
        bad_number="21211 131009", no_route="21612 131030", phone_off="UNDELIV", no_whatsapp="131026"
    ),
}

OPTED_OUT: LocalReason = "opted_out"
OPT_OUT_REASON_BY_CARRIER: dict[str, OptOutReason] = {"smpp": "carrier", "twilio": "carrier", "cloud_api": "marketing"}


def reported_opt_out(detail: Mapping[str, Any]) -> OptOutReason | None:
    """Return the opt-out reason to record if a carrier rejected the recipient as opted out; None otherwise."""
    carrier = str(detail.get("carrier"))
    is_opted_out = OPTED_OUT in (detail.get("reason"), CAUSE_BY_CODE.get(carrier, {}).get(str(detail.get("code"))))
    return OPT_OUT_REASON_BY_CARRIER.get(carrier) if is_opted_out else None


# States of SMPP receipts, by their first five letters.
CAUSE_BY_RECEIPT_STATE = _cause_by_code(
    given_up="EXPIR",
    canceled="DELET SKIPP",
    phone_off="UNDEL FAILE",
    rejected="REJEC",
    lost="UNKNO",
)
