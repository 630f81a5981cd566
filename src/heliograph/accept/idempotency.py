"""`Idempotency-Key`: sends a message once per key, and replays its response to retries (spec 4.1.3, contract 9)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from heliograph.accept.context import Context
from heliograph.domain.limits import PARSE_IN_THREAD_MIN
from heliograph.domain.refusals import IdempotencyKeyReused, IdempotencyRequestInProgress
from heliograph.domain.sending import idempotency
from heliograph.domain.sending.acceptance import IdempotencyKey, SendResult
from heliograph.domain.sending.idempotency import KeyedRequest

R = TypeVar("R")


async def send_once(
    context: Context,
    key_id: str,
    keyed_request: KeyedRequest | None,
    send: Callable[[IdempotencyKey | None], Awaitable[SendResult[R]]],
) -> SendResult[R]:
    """Run `send`, or replay the stored response of its Idempotency-Key."""
    if keyed_request is None:
        return await send(None)
    idempotency_key = IdempotencyKey(idempotency.key_hash(keyed_request.key), await _fingerprint(keyed_request))
    return await run_idempotent(context, key_id, idempotency_key, lambda: send(idempotency_key))


async def _fingerprint(keyed_request: KeyedRequest) -> str:
    if keyed_request.size > PARSE_IN_THREAD_MIN:
        return await asyncio.to_thread(idempotency.fingerprint_in_steps, keyed_request.path, keyed_request.body)
    return idempotency.fingerprint(keyed_request.path, keyed_request.body)


async def run_idempotent(
    context: Context, key_id: str, idempotency_key: IdempotencyKey, run: Callable[[], Awaitable[SendResult[R]]]
) -> SendResult[R]:
    """Call `run`, whose transaction stores the key with the response; or return the key's stored response.

    Concurrent requests with the same key are detected here within one process, and by the transaction across processes.
    """
    running_key = (key_id, idempotency_key.hash)
    running_fingerprint = context.running_requests.get(running_key)
    if running_fingerprint is not None:
        if running_fingerprint != idempotency_key.fingerprint:
            raise IdempotencyKeyReused(param=idempotency.HEADER)
        raise IdempotencyRequestInProgress(param=idempotency.HEADER, retry_after=1)
    context.running_requests[running_key] = idempotency_key.fingerprint
    try:
        row = await context.store.messages.find_stored_response(key_id, idempotency_key.hash)
        caller = context.store.setup.current.callers.get(key_id)
        now = context.clock.team_now(caller.team.record.ref if caller else 0)
        stored = idempotency.select_replay(row, idempotency_key.fingerprint, now)
        if stored is not None and stored.response is not None:
            return SendResult(stored.object_id, None, stored.response, replayed=True)
        return await run()
    finally:
        del context.running_requests[running_key]
