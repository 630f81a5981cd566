"""The floor: reads the body, answers 202 with as many bytes as we do, stores nothing; on our own server."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec

from heliograph.accept.email import EmailRecord
from heliograph.api.app import Api
from heliograph.server import Server, listen, uvicorn_config
from heliograph.settings import Settings

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

BODY = msgspec.json.encode(
    EmailRecord(
        id="eml_01JCQ8Z6V3M2N7T0K4H9R5B1XA",
        to="customer-1000@example.com",
        to_addresses=["customer-1000@example.com"],
        cc=[],
        bcc=[],
        reply_to=None,
        from_="hello@bench.test",
        subject="Your order 4711 is on its way",
        recipient_count=1,
        attachments_count=0,
        status="sending",
        sandbox=False,
        created_at="2025-01-01T00:00:00.000Z",
    )
)
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]


async def echo(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    body = b""
    more = True
    while more:
        event = await receive()
        body += event.get("body", b"")
        more = event.get("more_body", False)
    await send({"type": "http.response.start", "status": 202, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})


async def serve(app: object, port: int) -> None:
    """The same server and settings as heliograph's own, for any ASGI application."""
    await Server(uvicorn_config(cast(Api, app))).serve([listen(Settings(port=port))])


if __name__ == "__main__":
    asyncio.run(serve(echo, int(sys.argv[1])))
