"""POST /v1/emails/batch and the same for SMS and WhatsApp: up to 500 sends in one transaction (contract 16)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from heliograph.accept.context import Context
from heliograph.domain.field_docs import REF, limited, says
from heliograph.domain.ids import PREFIXES
from heliograph.domain.limits import BATCH_MAX
from heliograph.domain.refusals import OF_SETUP, Refusal
from heliograph.domain.sending.acceptance import Acceptance, BatchAcceptance, IdempotencyKey, Sent
from heliograph.domain.sending.batch import check_content, check_count
from heliograph.domain.setup.records import Caller

BREATH_S = 0.02  # yield to the event loop after preparing sends for this long

Emails = Annotated[list[Any], limited(items={"$ref": f"{REF}EmailRequest"}, minItems=1, maxItems=BATCH_MAX)]
PhoneMessages = Annotated[list[Any], limited(items={"$ref": f"{REF}PhoneRequest"}, minItems=1, maxItems=BATCH_MAX)]
SENDS = says("1 to 500 sends, each as the endpoint for one takes it.")
MODE = says("`strict`: the first refusal refuses all. `permissive`: what is not refused is sent.")


class BatchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: Annotated[Literal["strict", "permissive"] | None, MODE] = "strict"


class EmailBatchRequest(BatchRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    messages: Annotated[Emails, SENDS]


class PhoneBatchRequest(BatchRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    messages: Annotated[PhoneMessages, SENDS]


# Validates one send of a channel and returns the record to store
Prepare = Callable[[Context, Caller, Any], Awaitable[Acceptance]]
Fates = Sequence[Sent[Any] | Refusal]
Respond = Callable[[str, Fates], bytes]  # (batch id, result of each send) → response body


async def send_batch(
    context: Context,
    caller: Caller,
    sends: Sequence[Callable[[], Any]],
    *,
    prepare: Prepare,
    strict: bool,
    respond: Respond,
    retry_key: IdempotencyKey | None,
) -> Sent[Fates]:
    """Accept a batch of sends in one transaction.

    Each of `sends` returns a typed send request or raises a Refusal.
    """
    check_count(len(sends))
    id_, setup = context.clock.new_id(PREFIXES["batch"]), context.store.setup
    seen = setup.current
    made = await _prepared(context, caller, id_, sends, prepare, strict=strict)
    # A refusal of a strict batch is the whole response; its caller refreshes the setup and decides again.
    if not strict and any(isinstance(one, OF_SETUP) for one in made) and await setup.learned_since(seen):
        known = setup.current.callers.get(caller.key.id, caller)
        made = await _prepared(context, replace(caller, team=known.team), id_, sends, prepare, strict=strict)
    return await context.store.messages.accept(
        BatchAcceptance(
            id=id_,
            team=caller.team.record.ref,
            key_id=caller.key.id,
            created_at=context.clock.of(caller.team.record.ref),
            sends=made,
            strict=strict,
            respond=lambda told: respond(id_, told),
            retry_key=retry_key,
        )
    )


async def _prepared(
    context: Context, caller: Caller, id_: str, sends: Sequence[Callable[[], Any]], prepare: Prepare, *, strict: bool
) -> list[Acceptance | Refusal]:
    made, size = list[Acceptance | Refusal](), 0
    loop = asyncio.get_running_loop()
    breath = loop.time()
    for read in sends:
        if loop.time() > breath + BREATH_S:
            await asyncio.sleep(0)
            breath = loop.time()
        try:
            acceptance = await prepare(context, caller, read())
            check_content(size + acceptance.octets)
            size += acceptance.octets
            made.append(replace(acceptance, batch=id_))
        except Refusal as refusal:
            made.append(refusal)
            if strict:  # an earlier send may still be refused by the store
                break
    return made
