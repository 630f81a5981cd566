"""The sending endpoints: idempotency, dry run, then the channel's own accept function."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from heliograph import metrics
from heliograph.accept.context import Context
from heliograph.accept.idempotency import run_idempotent
from heliograph.accept.verify_check import CheckRequest
from heliograph.accept.verify_check import check_verification as check
from heliograph.accept.verify_start import cancel_verification as cancel
from heliograph.accept.verify_start import resend_verification as resend
from heliograph.api.bodies import to_request
from heliograph.api.route import Call, Query, answer
from heliograph.rules import idempotency
from heliograph.rules.acceptance import Answer, IdempotencyKey
from heliograph.rules.limits import IN_THREAD
from heliograph.rules.refusals import InvalidRequest
from heliograph.rules.setup.records import Caller
from heliograph.web.request import Response

REPLAYED = [(b"idempotency-replayed", b"true")]
DRY_RUN = Query("dry_run", "`true`: answer what would happen and write nothing.", {"type": "boolean"})

SendCall = Callable[[Context, Caller, Any, IdempotencyKey | None], Awaitable[Answer]]
PreviewCall = Callable[[Context, Caller, Any], Awaitable[Any]]


def sending(send: SendCall, preview: PreviewCall) -> Callable[[Call], Awaitable[Response]]:
    async def endpoint(call: Call) -> Response:
        context, caller, kind = call.context, call.caller, call.route.body
        key = read_key(call)
        if call.request.query_string and _dry_run(call):
            return answer(await preview(context, caller, to_request(call.json, kind)))
        return await once(call, key, lambda retry_key: send(context, caller, to_request(call.json, kind), retry_key))

    return endpoint


async def once(call: Call, key: str | None, send: Callable[[IdempotencyKey | None], Awaitable[Answer]]) -> Response:
    """The first answer again, when the key has one."""
    if key is None:
        done = await send(None)
    else:
        retry_key = IdempotencyKey(idempotency.key_hash(key), await _fingerprint(call))
        done = await run_idempotent(call.context, call.caller.key.id, retry_key, lambda: send(retry_key))
    if done.replayed:
        metrics.replayed.inc()
    return Response(done.status, done.body, REPLAYED if done.replayed else [])


def read_key(call: Call) -> str | None:
    return idempotency.read_key(call.request.values(b"idempotency-key"))


async def check_verification(call: Call) -> Response:
    request = to_request(call.json, CheckRequest)
    return answer(await check(call.context, call.caller, call.params["id"], request))


async def resend_verification(call: Call) -> Response:
    id_ = call.params["id"]
    return await once(call, read_key(call), lambda retry_key: resend(call.context, call.caller, id_, retry_key))


async def cancel_verification(call: Call) -> Response:
    return answer(await cancel(call.context, call.caller, call.params["id"]))


def _dry_run(call: Call) -> bool:
    given = call.query().get("dry_run", "false")
    if given not in ("true", "false"):
        raise InvalidRequest(f"dry_run is true or false, not {given[:80]!r}.", param="dry_run")
    return given == "true"


async def _fingerprint(call: Call) -> str:
    path = call.request.path
    if call.size > IN_THREAD:
        return await asyncio.to_thread(idempotency.fingerprint_in_steps, path, call.json)
    return idempotency.fingerprint(path, call.json)
