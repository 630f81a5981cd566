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
    """Return a decorator of a view, which receives the event of a signed request; others get 400.

    If the view returns None, the response is 204.
    """

    def with_event(view: View) -> View:
        @wraps(view)
        def receive(**kwargs: Any) -> Any:
            try:
                event = Event(verify_webhook(request.get_data(), dict(request.headers), secret))
            except WebhookRefused as error:
                abort(400, str(error))
            return view(event, **kwargs) or ("", 204)

        return receive

    return with_event
