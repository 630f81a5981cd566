"""`EMAIL_BACKEND = "heliograph_client.django.EmailBackend"`: Django's mail by Heliograph.

Understands what django-anymail adds to a message: `metadata`, `tags`, `template_id`, `merge_global_data`, `send_at`,
and `esp_extra` for any other field of a send. A message that was sent has `heliograph_id`.
"""

from __future__ import annotations

from collections.abc import Sequence
from email.mime.base import MIMEBase
from email.utils import parseaddr
from typing import Any

from django.conf import settings
from django.core.mail.backends.base import BaseEmailBackend
from django.core.mail.message import EmailMessage

from heliograph_client.client import Heliograph
from heliograph_client.errors import HeliographError

ANYMAIL = ("metadata", "template_id", "merge_global_data", "send_at")
OURS = ("metadata", "template_id", "variables", "scheduled_at")


class EmailBackend(BaseEmailBackend):  # type: ignore[misc]
    def __init__(self, fail_silently: bool = False, **options: Any) -> None:
        """`settings.HELIOGRAPH` may have what `Heliograph()` takes; else the environment has it."""
        super().__init__(fail_silently=fail_silently)
        self._options = getattr(settings, "HELIOGRAPH", {})
        self._client: Heliograph | None = None

    def open(self) -> bool:
        if self._client:
            return False
        self._client = Heliograph(**self._options)
        return True

    def close(self) -> None:
        if self._client:
            self._client.close()
            self._client = None

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        opened, sent = self.open(), 0
        try:
            for message in email_messages:
                sent += self._send(message)
        finally:
            if opened:
                self.close()
        return sent

    def _send(self, message: EmailMessage) -> bool:
        if not self._client or not message.recipients():
            return False
        try:
            message.heliograph_id = self._client.emails.send(**to_params(message)).id
        except HeliographError:
            if not self.fail_silently:
                raise
            return False
        return True


def to_params(message: EmailMessage) -> dict[str, Any]:
    """A send of the API; bare addresses, as it wants them."""
    headers = dict(message.extra_headers)
    written = headers.pop("Reply-To", None)
    html = [body for body, kind in getattr(message, "alternatives", []) if kind == "text/html"]
    is_html = message.content_subtype == "html"
    params: dict[str, Any] = {
        **{name: _bare(getattr(message, name)) for name in ("to", "cc", "bcc")},
        "from_": headers.pop("From", message.from_email),
        "reply_to": _bare(message.reply_to or ([written] if written else [])),
        "headers": headers,
        "attachments": [_attachment(one) for one in message.attachments],
        "tags": _tags(getattr(message, "tags", None) or ()),
    }
    if not getattr(message, "template_id", None):
        params |= {"subject": message.subject, "html" if is_html else "text": message.body}
        params |= {"html": html[0]} if html else {}
    params |= {ours: getattr(message, theirs, None) for ours, theirs in zip(OURS, ANYMAIL, strict=True)}
    return {name: value for name, value in (params | getattr(message, "esp_extra", {})).items() if value}


def _bare(addresses: Sequence[str]) -> list[str]:
    return [parseaddr(one)[1] for one in addresses]


def _tags(tags: Sequence[str]) -> dict[str, str]:
    """Theirs are words, ours have names: tag, tag_2, …"""
    return {f"tag_{n}" if n > 1 else "tag": word for n, word in enumerate(tags, 1)}


def _attachment(given: Any) -> dict[str, Any]:
    if isinstance(given, MIMEBase):
        id_ = (given["Content-ID"] or "").strip("<>")
        name, content, kind = given.get_filename() or id_, given.get_payload(decode=True), given.get_content_type()
    else:
        id_, (name, content, kind) = "", given
    whole = {"filename": name, "content": content.encode() if isinstance(content, str) else content}
    return whole | ({"content_type": kind} if kind else {}) | ({"content_id": id_} if id_ else {})
