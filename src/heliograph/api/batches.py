"""Batch sending: many sends in one request, and the progress of a batch."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any

import msgspec

from heliograph.accept.batch import Prepare, SendResults, send_batch
from heliograph.accept.idempotency import send_once
from heliograph.api.call import Call
from heliograph.domain.field_docs import Id, ObjectName, describe
from heliograph.domain.refusals import BatchNotFound, Refusal
from heliograph.domain.sending.acceptance import IdempotencyKey, SendResult
from heliograph.web.bodies import to_request
from heliograph.web.errors import ErrorBody, to_error
from heliograph.web.request import Response
from heliograph.web.route import json_response, send_response


class BatchEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result for one message in a batch."""

    id: Annotated[str | None, describe("Public id of the message; absent if it was refused.", maybe=True)] = None
    error: Annotated[
        ErrorBody | None, describe("Why the message was refused; absent if it was accepted.", maybe=True)
    ] = None


class BatchResponse(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "batch"
    id: Id
    data: Annotated[list[BatchEntry], describe("One result per message, in request order.")]


def batch_endpoint(prepare: Prepare, request_type: type[Any]) -> Callable[[Call], Awaitable[Response]]:
    """Return an endpoint that accepts a batch of sends. `request_type`: type of each send."""

    async def endpoint(call: Call) -> Response:
        async def send(idempotency_key: IdempotencyKey | None) -> SendResult[SendResults]:
            request = to_request(call.json, call.route.body)
            return await send_batch(
                call.context,
                call.caller,
                [partial(to_request, message, request_type) for message in request.messages],
                prepare=prepare,
                strict=request.mode != "permissive",
                respond=partial(_encode_response, call),
                idempotency_key=idempotency_key,
            )

        return send_response(await send_once(call.context, call.caller.key.id, call.keyed_request(), send))

    return endpoint


async def read(call: Call) -> Response:
    id_ = call.params["id"]
    batch = await call.context.store.batches.get(call.team, id_)
    if batch is None:
        raise BatchNotFound(f"No batch {id_[:80]!r}. {BatchNotFound.fix}", param="id")
    return json_response(batch)


def _encode_response(call: Call, id_: str, results: SendResults) -> bytes:
    return msgspec.json.encode(BatchResponse(id=id_, data=[_to_entry(call, result) for result in results]))


def _to_entry(call: Call, result: SendResult[Any] | Refusal) -> BatchEntry:
    if isinstance(result, Refusal):
        return BatchEntry(error=to_error(result, call.request.id, call.context.base_url))
    return BatchEntry(id=result.id)
