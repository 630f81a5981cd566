"""`EMAIL_BACKEND = "heliograph_client.django.EmailBackend"`: Django's mail by Heliograph.

Understands what django-anymail adds to a message: `metadata`, `tags`, `template_id`, `merge_global_data`, `send_at`,
and `esp_extra` for any other field of a send. A message that was sent has `heliograph_id`.

The view `webhook` sends delivery events to receivers of the signal `tracking`. Where this module is one of
INSTALLED_APPS, `manage.py check --deploy` asks whether the key works.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from email.mime.base import MIMEBase
from email.utils import parseaddr
from types import SimpleNamespace
from typing import Any

from django.conf import settings
from django.core.checks import Error, register
from django.core.mail.backends.base import BaseEmailBackend
from django.core.mail.message import EmailMessage
from django.dispatch import Signal
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from heliograph_client.client import Heliograph
from heliograph_client.errors import HeliographError
from heliograph_client.webhooks import WebhookRefused, verify_webhook

ANYMAIL = ("metadata", "template_id", "merge_global_data", "send_at")
OURS = ("metadata", "template_id", "variables", "scheduled_at")


class EmailBackend(BaseEmailBackend):  # type: ignore[misc]
    def __init__(self, fail_silently: bool = False, **options: Any) -> None:
        """`settings.HELIOGRAPH` may have what `Heliograph()` takes; else the environment has it."""
        super().__init__(fail_silently=fail_silently)
        self._client: Heliograph | None = None

    def open(self) -> bool:
        if self._client:
            return False
        self._client = _client()
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
    """Return django-anymail's list of tags as named tags: tag, tag_2, …."""
    return {f"tag_{n}" if n > 1 else "tag": word for n, word in enumerate(tags, 1)}


def _attachment(given: Any) -> dict[str, Any]:
    if isinstance(given, MIMEBase):
        id_ = (given["Content-ID"] or "").strip("<>")
        name, content, kind = given.get_filename() or id_, given.get_payload(decode=True), given.get_content_type()
    else:
        id_, (name, content, kind) = "", given
    whole = {"filename": name, "content": content.encode() if isinstance(content, str) else content}
    return whole | ({"content_type": kind} if kind else {}) | ({"content_id": id_} if id_ else {})


def _client() -> Heliograph:
    return Heliograph(**getattr(settings, "HELIOGRAPH", {}))


@register("heliograph", deploy=True)  # type: ignore[untyped-decorator]
def check_key(**_: Any) -> list[Error]:
    try:
        with _client() as client:
            client.me()
    except HeliographError as error:
        hint = "Look at settings.HELIOGRAPH, or HELIOGRAPH_URL and HELIOGRAPH_KEY in the environment."
        return [Error(f"No mail can be sent: {error}", hint=hint, id="heliograph.E001")]
    return []


tracking = Signal()  # has `event` and `esp_name`: receivers of django-anymail's signal work unchanged
REASONS = {"bounced": "bounced", "complained": "spam", "failed": "other", "rejected": "blocked"}


@csrf_exempt  # type: ignore[untyped-decorator]
@require_POST  # type: ignore[untyped-decorator]
def webhook(request: HttpRequest) -> HttpResponse:
    """Signed by `settings.HELIOGRAPH_WEBHOOK_SECRET`, one or several; any other request is answered 400."""
    try:
        event = verify_webhook(request.body, request.headers, settings.HELIOGRAPH_WEBHOOK_SECRET)
    except WebhookRefused as refused:
        return HttpResponse(str(refused), status=400)
    if "team_id" not in event:
        return HttpResponse("the endpoint's format is not heliograph", status=400)
    if event["type"].startswith("email.") and event["type"] != "email.sending":
        tracking.send(sender=webhook, event=_tracked(event), esp_name="Heliograph")
    return HttpResponse(status=204)


def _tracked(event: dict[str, Any]) -> SimpleNamespace:
    """In django-anymail's words."""
    data, kind = event["data"], event["type"].partition(".")[2]
    words = data.get("bounce") or data.get("error") or {}
    kind = "rejected" if words.get("reason") == "suppressed" else kind
    return SimpleNamespace(
        event_type=kind,
        timestamp=datetime.fromisoformat(event["created_at"].replace("Z", "+00:00")),
        event_id=event["id"],
        message_id=data["id"],
        recipient=data["recipient"],  # None: a blind copy
        reject_reason=REASONS.get(kind),
        description=words.get("text"),
        mta_response=words.get("text"),
        tags=list(data.get("tags", {}).values()),
        metadata=data.get("metadata", {}),
        esp_event=event,
        click_url=None,
        user_agent=None,
    )
