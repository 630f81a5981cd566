"""Converts events of mail providers to delivery reports (contract 6 and 17)."""

import re
from collections.abc import Iterable
from typing import Any

from heliograph.carriers.email.providers.event import ProviderEvent
from heliograph.domain.delivery.outcome import FORWARDING_FAILED, PROVIDER_SUPPRESSED, ProviderReport, Report
from heliograph.inbound.policy.bounce_classifier import VAGUE_CODES, blames_address, find_reason, is_domain_absent
from heliograph.inbound.policy.bounce_recipient import is_same_mailbox, names_other_recipient
from heliograph.inbound.policy.bounce_text import Codes, read_codes

# Causes of a provider's bounce type that mean that the address itself is invalid.
INVALID_ADDRESS_CAUSES = ("unknown_user", "address_rejected", "bad_address", "disabled")
_SMTP_CODE = re.compile("[45][0-5][0-9]")


def to_reports(provider: str, events: Iterable[ProviderEvent]) -> list[ProviderReport]:
    return [
        ProviderReport(
            tracking_id=event.tracking_id,
            carrier_ids=event.carrier_ids,
            message_id=event.message_id,
            address=event.address,
            report=_to_report(provider, event),
        )
        for event in events
    ]


def _to_report(provider: str, event: ProviderEvent) -> Report:
    optional = {"code": event.code, "enhanced": event.enhanced, "text": event.text, "at": event.at}
    detail = {"carrier": provider, "event": event.event_name} | {
        name: value for name, value in optional.items() if value
    }
    match event.kind:
        case "bounced" | "failed":
            return _bounce_report(event, detail)
        case "suppressed":
            return Report(status="failed", detail={"reason": PROVIDER_SUPPRESSED, **detail})
        case "complained":
            return Report(status="complained", detail=detail, suppress="complaint")
        case "deferred":
            if event.gives_up_at:
                detail["gives_up_at"] = event.gives_up_at
            return Report(
                status="deferred", detail=_with_cause(detail, event.cause) if _states_no_reason(event) else detail
            )
        case status:
            return Report(status=status, detail=detail)


def _bounce_report(event: ProviderEvent, detail: dict[str, Any]) -> Report:
    """Return the report of a bounce or failure.

    The text and codes of the server's reply decide whether the address is invalid; if they are missing or vague, the
    provider's bounce type decides.
    """
    address = event.address
    if address and (
        names_other_recipient(event.text, address)
        or (event.bounced_address and not is_same_mailbox(event.bounced_address, address))
    ):
        return Report(status="failed", detail={"reason": FORWARDING_FAILED, **detail})
    reason, codes = find_reason(event.text), _reply_codes(event)
    if _states_no_reason(event):
        is_full = codes.code == "552" or (reason is not None and reason.name == "mailbox_full")
        cause = event.cause or ("mailbox_full" if is_full else None)
        is_temporary = (codes.enhanced or codes.code or "").startswith("4")
        is_hard = event.kind == "bounced" and not is_temporary and (cause is None or cause in INVALID_ADDRESS_CAUSES)
        cause = cause or ("address_rejected" if is_hard else None)
        detail = _with_cause(detail, cause)
    else:
        is_hard = event.kind == "bounced" and blames_address(reason, codes.enhanced)
    if is_hard:
        return Report(
            status="bounced", detail=detail, suppress="bounce", absent=is_domain_absent(reason, codes.enhanced)
        )
    return Report(status="failed", detail=detail)


def _with_cause(detail: dict[str, Any], cause: str | None) -> dict[str, Any]:
    return {"reason": cause, **detail} if cause else detail


def _reply_codes(event: ProviderEvent) -> Codes:
    """Return the codes of the server's reply. Ignores providers' own error numbers, such as 498 and 605."""
    codes = read_codes(event.text)
    code = event.code if event.code and _SMTP_CODE.fullmatch(event.code) else codes.code
    return Codes(code=code, enhanced=event.enhanced or codes.enhanced)


def _states_no_reason(event: ProviderEvent) -> bool:
    """Return whether the event has no server reply, or a reply whose text and codes state no reason."""
    codes = _reply_codes(event)
    if not codes.code and not codes.enhanced:
        return True
    return find_reason(event.text) is None and (codes.enhanced is None or codes.enhanced in VAGUE_CODES)
