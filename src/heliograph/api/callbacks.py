"""/carriers/<id>/callback: receives carrier callbacks; the carrier implementation authenticates them."""

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
from heliograph.inbound.report_service import take_callback
from heliograph.web.request import Response

CALLBACK_MAX = MIB  # Meta batches many statuses into one request

REFUSALS: dict[int, type[Refusal]] = {
    401: InvalidSignature,
    403: CallbackNotVerified,
    413: PayloadTooLarge,
    503: ServiceUnavailable,
}


async def callback(call: Call) -> Response:
    """Process a carrier's callback; return 404 both for an unknown carrier and for a carrier without a secret.

    Carriers evaluate only the status of an error; its body is for developers who test the URL.
    """
    context, request = call.context, call.request

    async def body() -> bytes:
        return await call.read() if call.read and request.method == "POST" else b""

    query = request.query_string.decode("latin-1")
    asked = Callback(
        method=request.method,
        url=context.base_url + request.path + ("?" + query if query else ""),
        query=request.loose_query(),
        headers={name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()},
        body=b"",
        now=context.clock.now(),
        client=request.address,
    )
    answer = await take_callback(context.store, context.handover.carriers, call.params["id"], asked, body)
    if answer is None:
        raise NotFound(f"There is nothing at {request.path}. {NotFound.fix}")
    if answer.status >= 400:
        raise REFUSALS[answer.status]()
    return Response(answer.status, answer.body, content_type=answer.content_type)
