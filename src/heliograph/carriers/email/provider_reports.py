"""Converts events of mail providers to delivery reports (contract 6 and 17)."""

import re
from collections.abc import Iterable
from typing import Any

from heliograph.carriers.email.providers.event import ProviderEvent
from heliograph.domain.delivery.outcome import FORWARDING_FAILED, PROVIDER_SUPPRESSED, ProviderReport, Report
from heliograph.inbound.policy.bounce_classifier import VAGUE, blames_address, read_reason, says_absent
from heliograph.inbound.policy.bounce_recipient import begins_with_another, is_ours
from heliograph.inbound.policy.bounce_text import Codes, read_codes

# Causes of a provider's bounce type that mean that the address itself is invalid.
ADDRESS_CAUSES = ("unknown_user", "address_rejected", "bad_address", "disabled")
_SMTP_CODE = re.compile("[45][0-5][0-9]")


def to_reports(provider: str, told: Iterable[ProviderEvent]) -> list[ProviderReport]:
    return [
        ProviderReport(
            along=one.along,
            carrier_ids=one.carrier_ids,
            message_id=one.message_id,
            address=one.address,
            report=_report(provider, one),
        )
        for one in told
    ]


def _report(provider: str, told: ProviderEvent) -> Report:
    said = {"code": told.code, "enhanced": told.enhanced, "text": told.text, "at": told.at}
    detail = {"carrier": provider, "event": told.word} | {name: value for name, value in said.items() if value}
    match told.what:
        case "bounced" | "failed":
            return _bounce(told, detail)
        case "suppressed":
            return Report(status="failed", detail={"reason": PROVIDER_SUPPRESSED, **detail})
        case "complained":
            return Report(status="complained", detail=detail, suppress="complaint")
        case "deferred":
            if told.gives_up_at:
                detail["gives_up_at"] = told.gives_up_at
            return Report(status="deferred", detail=_with_cause(detail, told.cause) if _is_silent(told) else detail)
        case status:
            return Report(status=status, detail=detail)


def _bounce(told: ProviderEvent, detail: dict[str, Any]) -> Report:
    """Return the report of a bounce or failure.

    The text and codes of the server's reply decide whether the address is invalid; if they are missing or vague, the
    provider's bounce type decides.
    """
    ours = told.address
    if ours and (begins_with_another(told.text, ours) or (told.named and not is_ours(told.named, ours))):
        return Report(status="failed", detail={"reason": FORWARDING_FAILED, **detail})
    reason, codes = read_reason(told.text), _codes(told)
    if _is_silent(told):
        full = codes.code == "552" or (reason is not None and reason.name == "mailbox_full")
        cause = told.cause or ("mailbox_full" if full else None)
        is_hard = told.what == "bounced" and not _is_temporary(codes) and (cause is None or cause in ADDRESS_CAUSES)
        cause = cause or ("address_rejected" if is_hard else None)
        detail = _with_cause(detail, cause)
    else:
        is_hard = told.what == "bounced" and blames_address(reason, codes.enhanced)
    if is_hard:
        return Report(status="bounced", detail=detail, suppress="bounce", absent=says_absent(reason, codes.enhanced))
    return Report(status="failed", detail=detail)


def _with_cause(detail: dict[str, Any], cause: str | None) -> dict[str, Any]:
    return {"reason": cause, **detail} if cause else detail


def _codes(told: ProviderEvent) -> Codes:
    """Return the codes of the server's reply; ignores providers' own error numbers such as 498 and 605."""
    found = read_codes(told.text)
    code = told.code if told.code and _SMTP_CODE.fullmatch(told.code) else found.code
    return Codes(code=code, enhanced=told.enhanced or found.enhanced)


def _is_silent(told: ProviderEvent) -> bool:
    """Return whether the event has no server reply, or one whose text and codes state no reason."""
    codes = _codes(told)
    if not codes.code and not codes.enhanced:
        return True
    return read_reason(told.text) is None and (codes.enhanced is None or codes.enhanced in VAGUE)


def _is_temporary(codes: Codes) -> bool:
    return (codes.enhanced or codes.code or "").startswith("4")
