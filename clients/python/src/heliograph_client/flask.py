"""Webhooks in Flask: `@app.post("/hooks")`, `@webhook(secret)`, `def hook(event): …`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from flask import abort, request

from heliograph_client.results import Event
from heliograph_client.webhooks import WebhookRefused, verify_webhook

View = Callable[..., Any]


def webhook(secret: str | Sequence[str]) -> Callable[[View], View]:
    """The view gets the event of a signed request, and answers 204 with None; any other request is answered 400."""

    def with_event(view: View) -> View:
        @wraps(view)
        def receive(**named: Any) -> Any:
            try:
                event = Event(verify_webhook(request.get_data(), dict(request.headers), secret))
            except WebhookRefused as error:
                abort(400, str(error))
            return view(event, **named) or ("", 204)

        return receive

    return with_event
