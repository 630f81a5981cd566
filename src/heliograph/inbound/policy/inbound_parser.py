"""Parses inbound mail and extracts the reply text, also from HTML-only mail.

Slow for large mail: run it in a thread.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from msgspec.structs import replace

from heliograph.domain.mail.html_text import text_from_html
from heliograph.inbound.policy.inbound_mail import Authentication, ReadMail, read_incoming
from heliograph.inbound.policy.reply_text import reply_html, reply_text


class TeamMail(Protocol):
    """Receiver of mail for teams."""

    def owner(self, address: str) -> str | None: ...

    async def take(self, raw: bytes, mail: ReadMail, recipients: Sequence[str], judged: Authentication) -> None: ...


def read_received(raw: bytes, sender: str, recipients: Collection[str]) -> ReadMail:
    """Parse an inbound mail. `sender`: envelope sender; `recipients`: envelope recipients that are ours."""
    mail = read_incoming(raw, sender=sender, recipients=recipients)
    if mail.text is not None and mail.text.strip():
        return replace(mail, reply_text=reply_text(mail.text))
    return replace(mail, reply_text=reply_text(text_from_html(reply_html(mail.html)))) if mail.html else mail
