"""The endpoints that send: idempotency, dry run, then the accept function of the channel."""

from collections.abc import Awaitable, Callable
from typing import Any

from heliograph.accept.context import Context
from heliograph.accept.idempotency import send_once
from heliograph.accept.verify_check import CheckRequest
from heliograph.accept.verify_check import check_verification as check
from heliograph.accept.verify_start import cancel_verification as cancel
from heliograph.accept.verify_start import resend_verification as resend
from heliograph.api.call import Call
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.sending.acceptance import IdempotencyKey, SendResult
from heliograph.domain.setup.records import Caller
from heliograph.web.bodies import to_request
from heliograph.web.request import Response
from heliograph.web.route import QueryParam, json_response, large_json_response, send_response

DRY_RUN = QueryParam(
    "dry_run",
    "`true`: validate and return what would be sent, without sending or storing anything.",
    {"type": "boolean"},
)

SendCall = Callable[[Context, Caller, Any, IdempotencyKey | None], Awaitable[SendResult[Any]]]
PreviewCall = Callable[[Context, Caller, Any], Awaitable[Any]]


def send_endpoint(
    send: SendCall, preview: PreviewCall, estimate_size: Callable[[Caller, Any], int] | None = None
) -> Callable[[Call], Awaitable[Response]]:
    """Return a send endpoint. `estimate_size` returns the approximate size of a dry run's response, if this varies."""

    async def endpoint(call: Call) -> Response:
        context, caller, request_type = call.context, call.caller, call.route.body
        keyed_request = call.keyed_request()
        if call.request.query_string and _dry_run(call):
            request = to_request(call.json, request_type)
            octets = estimate_size(caller, request) if estimate_size else 0
            await call.reserve_memory(octets)
            result = await preview(context, caller, request)
            return await large_json_response(octets, lambda: result)
        if keyed_request is None:
            return send_response(await send(context, caller, to_request(call.json, request_type), None))
        return send_response(
            await send_once(
                context,
                caller.key.id,
                keyed_request,
                lambda idempotency_key: send(context, caller, to_request(call.json, request_type), idempotency_key),
            )
        )

    return endpoint


async def check_verification(call: Call) -> Response:
    request = to_request(call.json, CheckRequest)
    return json_response(await check(call.context, call.caller, call.params["id"], request))


async def resend_verification(call: Call) -> Response:
    id_ = call.params["id"]
    context, caller = call.context, call.caller
    return send_response(
        await send_once(
            context,
            caller.key.id,
            call.keyed_request(),
            lambda idempotency_key: resend(context, caller, id_, idempotency_key),
        )
    )


async def cancel_verification(call: Call) -> Response:
    return json_response(await cancel(call.context, call.caller, call.params["id"]))


def _dry_run(call: Call) -> bool:
    text = call.query().get("dry_run", "false")
    if text not in ("true", "false"):
        raise InvalidRequest(f"dry_run must be true or false, not {text[:80]!r}.", param="dry_run")
    return text == "true"
