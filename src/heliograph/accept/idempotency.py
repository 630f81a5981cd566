"""`Idempotency-Key`: one message per key; retries receive the first response (spec 4.1.3, contract 9)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from heliograph.accept.context import Context
from heliograph.domain.limits import IN_THREAD
from heliograph.domain.refusals import IdempotencyKeyReused, IdempotencyRequestInProgress
from heliograph.domain.sending import idempotency
from heliograph.domain.sending.acceptance import IdempotencyKey, Sent
from heliograph.domain.sending.idempotency import Retry

R = TypeVar("R")


async def send_once(
    context: Context, key_id: str, retry: Retry | None, send: Callable[[IdempotencyKey | None], Awaitable[Sent[R]]]
) -> Sent[R]:
    """Run `send`, or replay the stored response of its Idempotency-Key."""
    if retry is None:
        return await send(None)
    retry_key = IdempotencyKey(idempotency.key_hash(retry.key), await _fingerprint(retry))
    return await run_idempotent(context, key_id, retry_key, lambda: send(retry_key))


async def _fingerprint(retry: Retry) -> str:
    if retry.size > IN_THREAD:
        return await asyncio.to_thread(idempotency.fingerprint_in_steps, retry.path, retry.body)
    return idempotency.fingerprint(retry.path, retry.body)


async def run_idempotent(
    context: Context, key_id: str, retry_key: IdempotencyKey, run: Callable[[], Awaitable[Sent[R]]]
) -> Sent[R]:
    """Replay the stored response, or call `run`, whose accept transaction stores the key.

    Concurrent requests are detected here within this process, and in the transaction between processes.
    """
    request = (key_id, retry_key.hash)
    running = context.running.get(request)
    if running is not None:
        if running != retry_key.fingerprint:
            raise IdempotencyKeyReused(param=idempotency.HEADER)
        raise IdempotencyRequestInProgress(param=idempotency.HEADER, retry_after=1)
    context.running[request] = retry_key.fingerprint
    try:
        row = await context.store.messages.remembered(key_id, retry_key.hash)
        caller = context.store.setup.current.callers.get(key_id)
        now = context.clock.of(caller.team.record.ref if caller else 0)
        found = idempotency.decide(row, retry_key.fingerprint, now)
        if found is not None and found.response is not None:
            return Sent(found.made, None, found.response, replayed=True)
        return await run()
    finally:
        del context.running[request]
