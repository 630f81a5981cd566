"""`Idempotency-Key`: one message for one key, the first answer for every retry (spec 4.1.3, contract 9)."""

from collections.abc import Awaitable, Callable

from heliograph.accept.context import Context
from heliograph.rules import idempotency
from heliograph.rules.acceptance import Answer, Once
from heliograph.rules.refusals import IdempotencyKeyReused, IdempotencyRequestInProgress


async def run_once(context: Context, key_id: str, once: Once, run: Callable[[], Awaitable[Answer]]) -> Answer:
    """Replay the first answer, or run and let the accept transaction remember the key.

    Two requests of this process meet here; those of two processes meet in the transaction.
    """
    place = (key_id, once.hash)
    running = context.running.get(place)
    if running is not None:
        if running != once.fingerprint:
            raise IdempotencyKeyReused(param=idempotency.HEADER)
        raise IdempotencyRequestInProgress(param=idempotency.HEADER, retry_after=1)
    context.running[place] = once.fingerprint
    try:
        row = await context.store.messages.remembered(key_id, once.hash)
        found = idempotency.decide(row, once.fingerprint, context.clock.now())
        if found is not None and found.status is not None and found.response is not None:
            return Answer(found.status, found.response, replayed=True)
        return await run()
    finally:
        del context.running[place]
