"""Builds the content of an SMS: text, parts, and the sender of spec 4.2."""

from heliograph.domain.delivery.content import SmsContent
from heliograph.domain.phones.gsm import segment
from heliograph.domain.setup.records import Platform, Team


def sms_content(
    team: Team, platform: Platform, own: str | None, body: str, *, validity_s: int = 0, is_answer: bool = False
) -> SmsContent:
    """Return the content of an SMS; `own` is the team's sender id, None to use the platform's."""
    segments = segment(body)
    return SmsContent(
        body=body,
        sender_id=own or platform.brand,
        platform_sender=own is None,
        encoding=segments.encoding,
        segments=segments.billed(team.record.segmenting),
        parts=segments.udh,
        validity_s=validity_s,
        is_answer=is_answer,
    )
