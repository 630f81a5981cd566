"""/carriers/<id>/callback: receives callbacks of carriers, which the carrier's implementation authenticates."""

from heliograph.api.call import Call
from heliograph.carriers.contract import Callback
from heliograph.domain.limits import MIB
from heliograph.domain.refusals import (
    CallbackNotVerified,
    InvalidSignature,
    NotFound,
    PayloadTooLarge,
    Refusal,
    ServiceUnavailable,
)
from heliograph.inbound.report_service import handle_callback
from heliograph.web.request import Response

CALLBACK_MAX = MIB  # large, because Meta sends many statuses in one request

REFUSAL_BY_STATUS: dict[int, type[Refusal]] = {
    401: InvalidSignature,
    403: CallbackNotVerified,
    413: PayloadTooLarge,
    503: ServiceUnavailable,
}


async def callback(call: Call) -> Response:
    """Process a carrier's callback; return 404 if the carrier is unknown or has no secret.

    Carriers only evaluate the status of an error. The body is for developers who test the URL.
    """
    context, request = call.context, call.request

    async def read_body() -> bytes:
        return await call.read_body() if call.read_body and request.method == "POST" else b""

    query = request.query_string.decode("latin-1")
    incoming = Callback(
        method=request.method,
        url=context.base_url + request.path + ("?" + query if query else ""),
        query=request.unchecked_query(),
        headers=request.decoded_headers(),
        body=b"",
        now=context.clock.now(),
        client=request.address,
    )
    reply = await handle_callback(context.store, context.failover.carriers, call.params["id"], incoming, read_body)
    if reply is None:
        raise NotFound(f"Nothing is served at {request.path}. {NotFound.fix}")
    if reply.status >= 400:
        raise REFUSAL_BY_STATUS[reply.status]()
    return Response(reply.status, reply.body, content_type=reply.content_type)
