"""The floor: a bare ASGI application on uvicorn that answers 202 with a body of the same size and stores nothing."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import uvicorn

from heliograph.accept.email import EmailRecord
from heliograph.runtime import listening

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
    """Run any ASGI application, without features that our server lacks."""
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        interface="asgi3",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=listening.BACKLOG,
    )
    await uvicorn.Server(config).serve([listening.listen("127.0.0.1", port)])


if __name__ == "__main__":
    asyncio.run(serve(echo, int(sys.argv[1])))
