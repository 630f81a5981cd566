"""Batch sending: many sends in one request, and the progress of a batch."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any

import msgspec

from heliograph.accept.batch import Fates, Prepare, send_batch
from heliograph.accept.idempotency import send_once
from heliograph.api.call import Call
from heliograph.domain.field_docs import Id, ObjectName, says
from heliograph.domain.refusals import BatchNotFound, Refusal
from heliograph.domain.sending.acceptance import IdempotencyKey, Sent
from heliograph.web.bodies import to_request
from heliograph.web.errors import ErrorBody, to_error
from heliograph.web.request import Response
from heliograph.web.route import answer, answer_once


class BatchEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a send."""

    id: Annotated[str | None, says("Public id of the message.", maybe=True)] = None
    error: Annotated[ErrorBody | None, says("Why there is none.", maybe=True)] = None


class BatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "batch"
    id: Id
    data: Annotated[list[BatchEntry], says("An entry for each send, in the order given.")]


def sending(prepare: Prepare, kind: type[Any]) -> Callable[[Call], Awaitable[Response]]:
    """Return the endpoint that accepts a batch of sends; `kind` is the request struct of one send."""

    async def endpoint(call: Call) -> Response:
        async def send(retry_key: IdempotencyKey | None) -> Sent[Fates]:
            request = to_request(call.json, call.route.body)
            return await send_batch(
                call.context,
                call.caller,
                [partial(to_request, one, kind) for one in request.messages],
                prepare=prepare,
                strict=request.mode != "permissive",
                respond=partial(_respond, call),
                retry_key=retry_key,
            )

        return answer_once(await send_once(call.context, call.caller.key.id, call.retry(), send))

    return endpoint


async def read(call: Call) -> Response:
    id_ = call.params["id"]
    found = await call.context.store.batches.get(call.team, id_)
    if found is None:
        raise BatchNotFound(f"No batch {id_[:80]!r}. {BatchNotFound.fix}", param="id")
    return answer(found)


def _respond(call: Call, id_: str, told: Fates) -> bytes:
    return msgspec.json.encode(BatchAnswer(id=id_, data=[_entry(call, one) for one in told]))


def _entry(call: Call, one: Sent[Any] | Refusal) -> BatchEntry:
    if isinstance(one, Refusal):
        return BatchEntry(error=to_error(one, call.request.id, call.context.base_url))
    return BatchEntry(id=one.id)
