"""Parses inbound mail for teams and extracts the text of a reply. Slow for large mail: run it in a thread."""

from collections.abc import Collection, Sequence
from typing import Protocol

from msgspec.structs import replace

from heliograph.domain.mail.html_text import html_to_plain_text
from heliograph.inbound.policy.inbound_mail import Authentication, ParsedMail, parse_mail
from heliograph.inbound.policy.reply_text import reply_html, reply_text


class TeamMailbox(Protocol):
    """Accepts inbound mail for teams; implemented in mail_service.py."""

    def find_team_id(self, address: str) -> str | None: ...

    async def deliver(
        self, raw: bytes, mail: ParsedMail, recipients: Sequence[str], authentication: Authentication
    ) -> None: ...


def parse_inbound_mail(raw: bytes, sender: str, recipients: Collection[str]) -> ParsedMail:
    """Parse an inbound mail. `sender`: envelope sender; `recipients`: envelope recipients that belong to teams."""
    mail = parse_mail(raw, sender=sender, recipients=recipients)
    if mail.text is not None and mail.text.strip():
        return replace(mail, reply_text=reply_text(mail.text))
    return replace(mail, reply_text=reply_text(html_to_plain_text(reply_html(mail.html)))) if mail.html else mail
