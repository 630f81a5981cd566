"""POST /v1/emails/batch and the same for SMS and WhatsApp: up to 500 sends in one transaction (contract 16)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from heliograph.accept.context import Context
from heliograph.domain.field_docs import SCHEMA_REF_PREFIX, describe, schema_limits
from heliograph.domain.ids import PREFIXES
from heliograph.domain.limits import BATCH_MAX
from heliograph.domain.refusals import SETUP_DEPENDENT_REFUSALS, Refusal
from heliograph.domain.sending.acceptance import Acceptance, BatchAcceptance, IdempotencyKey, SendResult
from heliograph.domain.sending.batch import check_content, check_count
from heliograph.domain.setup.records import Caller

YIELD_AFTER_S = 0.02  # yield to the event loop after preparing sends for this long

Emails = Annotated[
    list[Any], schema_limits(items={"$ref": f"{SCHEMA_REF_PREFIX}EmailRequest"}, minItems=1, maxItems=BATCH_MAX)
]
PhoneMessages = Annotated[
    list[Any], schema_limits(items={"$ref": f"{SCHEMA_REF_PREFIX}PhoneRequest"}, minItems=1, maxItems=BATCH_MAX)
]
MESSAGES_DOC = describe("1 to 500 sends, each as the endpoint for one takes it.")
MODE_DOC = describe("`strict`: the first refusal refuses all. `permissive`: what is not refused is sent.")


class BatchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: Annotated[Literal["strict", "permissive"] | None, MODE_DOC] = "strict"


class EmailBatchRequest(BatchRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    messages: Annotated[Emails, MESSAGES_DOC]


class PhoneBatchRequest(BatchRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    messages: Annotated[PhoneMessages, MESSAGES_DOC]


# Validates one send of a channel and returns what the transaction stores
Prepare = Callable[[Context, Caller, Any], Awaitable[Acceptance]]
SendResults = Sequence[SendResult[Any] | Refusal]
Respond = Callable[[str, SendResults], bytes]  # (batch id, result of each send) → response body


async def send_batch(
    context: Context,
    caller: Caller,
    sends: Sequence[Callable[[], Any]],
    *,
    prepare: Prepare,
    strict: bool,
    respond: Respond,
    idempotency_key: IdempotencyKey | None,
) -> SendResult[SendResults]:
    """Accept a batch of sends in one transaction. Each of `sends` returns a typed send request or raises a Refusal."""
    check_count(len(sends))
    id_, setup = context.clock.new_id(PREFIXES["batch"]), context.store.setup
    setup_before = setup.current
    prepared = await _prepare_all(context, caller, id_, sends, prepare, strict=strict)
    # If a strict batch is refused, the caller of this function reloads the setup and tries again.
    if (
        not strict
        and any(isinstance(result, SETUP_DEPENDENT_REFUSALS) for result in prepared)
        and await setup.refresh_if_newer(setup_before)
    ):
        newest_caller = setup.current.callers.get(caller.key.id, caller)
        prepared = await _prepare_all(
            context, replace(caller, team=newest_caller.team), id_, sends, prepare, strict=strict
        )
    return await context.store.messages.accept(
        BatchAcceptance(
            id=id_,
            team=caller.team.record.ref,
            key_id=caller.key.id,
            created_at=context.clock.team_now(caller.team.record.ref),
            sends=prepared,
            strict=strict,
            respond=lambda results: respond(id_, results),
            idempotency_key=idempotency_key,
        )
    )


async def _prepare_all(
    context: Context, caller: Caller, id_: str, sends: Sequence[Callable[[], Any]], prepare: Prepare, *, strict: bool
) -> list[Acceptance | Refusal]:
    prepared, size = list[Acceptance | Refusal](), 0
    loop = asyncio.get_running_loop()
    yielded_at = loop.time()
    for read_request in sends:
        if loop.time() > yielded_at + YIELD_AFTER_S:
            await asyncio.sleep(0)
            yielded_at = loop.time()
        try:
            acceptance = await prepare(context, caller, read_request())
            check_content(size + acceptance.rendered_bytes)
            size += acceptance.rendered_bytes
            prepared.append(replace(acceptance, batch=id_))
        except Refusal as refusal:
            prepared.append(refusal)
            if strict:  # an earlier send may still be refused by the store, which checks sends in order
                break
    return prepared
