"""Client of Heliograph: `Heliograph` blocks, `AsyncHeliograph` is awaited."""

from heliograph_client import codes, errors
from heliograph_client.client import AsyncHeliograph, Heliograph
from heliograph_client.errors import ApiError, HeliographError, NoAnswer
from heliograph_client.webhooks import WebhookRefused, verify_webhook

__all__ = [
    "ApiError",
    "AsyncHeliograph",
    "Heliograph",
    "HeliographError",
    "NoAnswer",
    "WebhookRefused",
    "codes",
    "errors",
    "verify_webhook",
]
