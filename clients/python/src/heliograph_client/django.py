"""Email backend for Django: `EMAIL_BACKEND = "heliograph_client.django.EmailBackend"`.

Supports the attributes that django-anymail adds to a message: `metadata`, `tags`, `template_id`, `merge_global_data`,
`send_at`, and `esp_extra` for all other fields of a send. A sent message has the attribute `heliograph_id`.

The view `webhook` passes delivery events to receivers of the signal `tracking`. With this module in INSTALLED_APPS,
`manage.py check --deploy` checks whether the key is valid.
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
        """Create the backend. `settings.HELIOGRAPH`: arguments of `Heliograph()`, by default from the environment."""
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
    """Return the arguments of `emails.send`; the API requires addresses without display names."""
    headers = dict(message.extra_headers)
    reply_to_header = headers.pop("Reply-To", None)
    html = [body for body, kind in getattr(message, "alternatives", []) if kind == "text/html"]
    is_html = message.content_subtype == "html"
    params: dict[str, Any] = {
        **{name: _bare(getattr(message, name)) for name in ("to", "cc", "bcc")},
        "from_": headers.pop("From", message.from_email),
        "reply_to": _bare(message.reply_to or ([reply_to_header] if reply_to_header else [])),
        "headers": headers,
        "attachments": [_attachment(item) for item in message.attachments],
        "tags": _tags(getattr(message, "tags", None) or ()),
    }
    if not getattr(message, "template_id", None):
        params |= {"subject": message.subject, "html" if is_html else "text": message.body}
        params |= {"html": html[0]} if html else {}
    params |= {ours: getattr(message, theirs, None) for ours, theirs in zip(OURS, ANYMAIL, strict=True)}
    return {name: value for name, value in (params | getattr(message, "esp_extra", {})).items() if value}


def _bare(addresses: Sequence[str]) -> list[str]:
    return [parseaddr(address)[1] for address in addresses]


def _tags(tags: Sequence[str]) -> dict[str, str]:
    """Return django-anymail's list of tags as named tags: tag, tag_2, …."""
    return {f"tag_{n}" if n > 1 else "tag": tag for n, tag in enumerate(tags, 1)}


def _attachment(attachment: Any) -> dict[str, Any]:
    if isinstance(attachment, MIMEBase):
        id_ = (attachment["Content-ID"] or "").strip("<>")
        name, content = attachment.get_filename() or id_, attachment.get_payload(decode=True)
        kind = attachment.get_content_type()
    else:
        id_, (name, content, kind) = "", attachment
    fields = {"filename": name, "content": content.encode() if isinstance(content, str) else content}
    return fields | ({"content_type": kind} if kind else {}) | ({"content_id": id_} if id_ else {})


def _client() -> Heliograph:
    return Heliograph(**getattr(settings, "HELIOGRAPH", {}))


@register("heliograph", deploy=True)  # type: ignore[untyped-decorator]
def check_key(**_: Any) -> list[Error]:
    try:
        with _client() as client:
            client.me()
    except HeliographError as error:
        hint = "Check settings.HELIOGRAPH, or HELIOGRAPH_URL and HELIOGRAPH_KEY in the environment."
        return [Error(f"No mail can be sent: {error}", hint=hint, id="heliograph.E001")]
    return []


tracking = Signal()  # sent with `event` and `esp_name`, so that receivers of django-anymail's signal work unchanged
REASONS = {"bounced": "bounced", "complained": "spam", "failed": "other", "rejected": "blocked"}


@csrf_exempt  # type: ignore[untyped-decorator]
@require_POST  # type: ignore[untyped-decorator]
def webhook(request: HttpRequest) -> HttpResponse:
    """Receive a signed request; respond 400 to others. `settings.HELIOGRAPH_WEBHOOK_SECRET`: secret, or several."""
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
    """Return the event in django-anymail's format."""
    data, kind = event["data"], event["type"].partition(".")[2]
    failure = data.get("bounce") or data.get("error") or {}
    kind = "rejected" if failure.get("reason") == "suppressed" else kind
    return SimpleNamespace(
        event_type=kind,
        timestamp=datetime.fromisoformat(event["created_at"].replace("Z", "+00:00")),
        event_id=event["id"],
        message_id=data["id"],
        recipient=data["recipient"],  # None for a Bcc recipient
        reject_reason=REASONS.get(kind),
        description=failure.get("text"),
        mta_response=failure.get("text"),
        tags=list(data.get("tags", {}).values()),
        metadata=data.get("metadata", {}),
        esp_event=event,
        click_url=None,
        user_agent=None,
    )
