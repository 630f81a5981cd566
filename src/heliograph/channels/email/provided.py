"""What a mail provider tells becomes a report (contract 6 and 17)."""

from collections.abc import Iterable
from typing import Any

from heliograph.channels.email.named import begins_with_another, is_ours
from heliograph.channels.email.providers.told import ProviderEvent
from heliograph.channels.email.words import read_codes
from heliograph.rules.delivery.outcome import FORWARDING_FAILED, PROVIDER_SUPPRESSED, ProviderReport, Report
from heliograph.rules.mail.blame import VAGUE, blames_address, read_reason, says_absent


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
        case "deferred" if told.gives_up_at:
            return Report(status="deferred", detail=detail | {"gives_up_at": told.gives_up_at})
        case status:
            return Report(status=status, detail=detail)


def _bounce(told: ProviderEvent, detail: dict[str, Any]) -> Report:
    """Report a bounce: words beat codes, and only blame of the address suppresses.

    Without either the provider's own word counts.
    """
    ours = told.address
    if ours and (begins_with_another(told.text, ours) or (told.named and not is_ours(told.named, ours))):
        return Report(status="failed", detail={"reason": FORWARDING_FAILED, **detail})
    reason, enhanced = read_reason(told.text), told.enhanced or read_codes(told.text).enhanced
    silent = reason is None and (enhanced is None or enhanced in VAGUE)
    if told.what == "bounced" and (silent or blames_address(reason, enhanced)):
        return Report(status="bounced", detail=detail, suppress="bounce", absent=says_absent(reason, enhanced))
    return Report(status="failed", detail=detail)
