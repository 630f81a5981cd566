"""Webhooks in FastAPI: `event: Event = Depends(webhook_event(secret))`."""

from collections.abc import Awaitable, Callable, Sequence

from fastapi import HTTPException, Request

from heliograph_client.results import Event
from heliograph_client.webhooks import WebhookRefused, verify_webhook


def webhook_event(secret: str | Sequence[str]) -> Callable[[Request], Awaitable[Event]]:
    """Return a dependency that provides the event of a signed request, and responds 400 to others."""

    async def event(request: Request) -> Event:
        try:
            return Event(verify_webhook(await request.body(), request.headers, secret))
        except WebhookRefused as error:
            raise HTTPException(400, str(error)) from None

    return event
