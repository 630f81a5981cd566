"""Builds the content of an SMS: text, number of segments, and sender."""

from heliograph.domain.delivery.content import SmsContent
from heliograph.domain.phones.gsm import count_segments
from heliograph.domain.setup.records import Platform, Team


def sms_content(
    team: Team,
    platform: Platform,
    team_sender_id: str | None,
    body: str,
    *,
    validity_s: int = 0,
    is_answer: bool = False,
) -> SmsContent:
    """Return the content of an SMS. `team_sender_id`: the team's approved sender id, or None to use the platform's."""
    segments = count_segments(body)
    return SmsContent(
        body=body,
        sender_id=team_sender_id or platform.brand,
        platform_sender=team_sender_id is None,
        encoding=segments.encoding,
        segments=segments.billed(team.record.segmenting),
        parts=segments.udh,
        validity_s=validity_s,
        is_answer=is_answer,
    )
