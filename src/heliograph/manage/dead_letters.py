"""Retries or drops messages of the dead-letter queue, with an audit entry for each message."""

from collections.abc import AsyncIterator

from heliograph.domain.audit.actor import Actor, AuditEntry
from heliograph.storage.audit import NEWEST
from heliograph.storage.dead_letters import BATCH, FIRST_PAGE, DeadLetterKey, RetryResult
from heliograph.storage.store import Store

LETTERS_MAX = 1000  # maximum dead letters processed by one request


async def retry(store: Store, actor: Actor, letter: DeadLetterKey) -> RetryResult:
    return await store.dead_letters.retry([letter], _entry(store, actor, "deadletter.retry"))


async def drop(store: Store, actor: Actor, letter: DeadLetterKey) -> int:
    return await store.dead_letters.drop([letter], _entry(store, actor, "deadletter.drop"))


async def retry_all(store: Store, actor: Actor, until: int = NEWEST) -> RetryResult:
    """Retry all messages that entered the dead-letter queue up to the time `until`."""
    retried, entry = RetryResult(), _entry(store, actor, "deadletter.retry")
    async for letters in _batches(store, until):
        retried = retried.plus(await store.dead_letters.retry(letters, entry))
    return retried


async def drop_all(store: Store, actor: Actor, until: int = NEWEST) -> int:
    dropped, entry = 0, _entry(store, actor, "deadletter.drop")
    async for letters in _batches(store, until):
        dropped += await store.dead_letters.drop(letters, entry)
    return dropped


async def _batches(store: Store, until: int) -> AsyncIterator[list[DeadLetterKey]]:
    """Yield the dead letters in batches; the caller processes each batch in a transaction of its own."""
    before = FIRST_PAGE
    for _ in range(LETTERS_MAX // BATCH):
        letters = [letter.key for letter in await store.dead_letters.list_page(before, BATCH, until)]
        if letters:
            yield letters[:BATCH]
        if len(letters) <= BATCH:
            return
        before = letters[BATCH - 1]


def _entry(store: Store, actor: Actor, action: str) -> AuditEntry:
    """Return an audit entry without a subject; the store adds the message id as its subject."""
    return actor.audit_entry(store.clock.now(), action, "")
