"""The sending endpoints: idempotency, dry run, then the channel's own accept function."""

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
from heliograph.domain.sending.acceptance import IdempotencyKey, Sent
from heliograph.domain.setup.records import Caller
from heliograph.web.bodies import to_request
from heliograph.web.request import Response
from heliograph.web.route import Query, answer, answer_of, answer_once

DRY_RUN = Query("dry_run", "`true`: answer what would happen and write nothing.", {"type": "boolean"})

SendCall = Callable[[Context, Caller, Any, IdempotencyKey | None], Awaitable[Sent[Any]]]
PreviewCall = Callable[[Context, Caller, Any], Awaitable[Any]]


def sending(
    send: SendCall, preview: PreviewCall, weigh: Callable[[Caller, Any], int] | None = None
) -> Callable[[Call], Awaitable[Response]]:
    """Return a send endpoint; `weigh` estimates the bytes of a dry run's response, if that can be large."""

    async def endpoint(call: Call) -> Response:
        context, caller, kind = call.context, call.caller, call.route.body
        retry = call.retry()
        if call.request.query_string and _dry_run(call):
            request = to_request(call.json, kind)
            octets = weigh(caller, request) if weigh else 0
            await call.hold(octets)
            shown = await preview(context, caller, request)
            return await answer_of(octets, lambda: shown)
        if retry is None:
            return answer_once(await send(context, caller, to_request(call.json, kind), None))
        return answer_once(
            await send_once(
                context,
                caller.key.id,
                retry,
                lambda retry_key: send(context, caller, to_request(call.json, kind), retry_key),
            )
        )

    return endpoint


async def check_verification(call: Call) -> Response:
    request = to_request(call.json, CheckRequest)
    return answer(await check(call.context, call.caller, call.params["id"], request))


async def resend_verification(call: Call) -> Response:
    id_ = call.params["id"]
    context, caller = call.context, call.caller
    return answer_once(
        await send_once(context, caller.key.id, call.retry(), lambda retry_key: resend(context, caller, id_, retry_key))
    )


async def cancel_verification(call: Call) -> Response:
    return answer(await cancel(call.context, call.caller, call.params["id"]))


def _dry_run(call: Call) -> bool:
    given = call.query().get("dry_run", "false")
    if given not in ("true", "false"):
        raise InvalidRequest(f"dry_run is true or false, not {given[:80]!r}.", param="dry_run")
    return given == "true"
