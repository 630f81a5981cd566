"""Retries or drops messages of the dead-letter queue, with an audit entry for each message."""

from collections.abc import AsyncIterator

from heliograph.domain.audit.actor import Actor, AuditEntry
from heliograph.storage.audit import NEWEST
from heliograph.storage.dead_letters import FIRST, PORTION, LetterKey, Retried
from heliograph.storage.store import Store

ALL_MOST = 1000  # most dead letters that one request processes


async def retry(store: Store, actor: Actor, letter: LetterKey) -> Retried:
    return await store.dead_letters.retry([letter], _entry(store, actor, "deadletter.retry"))


async def drop(store: Store, actor: Actor, letter: LetterKey) -> int:
    return await store.dead_letters.drop([letter], _entry(store, actor, "deadletter.drop"))


async def retry_all(store: Store, actor: Actor, until: int = NEWEST) -> Retried:
    """Retry all dead letters up to the time `until`."""
    done, entry = Retried(), _entry(store, actor, "deadletter.retry")
    async for letters in _portions(store, until):
        done = done.plus(await store.dead_letters.retry(letters, entry))
    return done


async def drop_all(store: Store, actor: Actor, until: int = NEWEST) -> int:
    done, entry = 0, _entry(store, actor, "deadletter.drop")
    async for letters in _portions(store, until):
        done += await store.dead_letters.drop(letters, entry)
    return done


async def _portions(store: Store, until: int) -> AsyncIterator[list[LetterKey]]:
    """Yield batches of dead letters, each for its own transaction."""
    before = FIRST
    for _ in range(ALL_MOST // PORTION):
        letters = [letter.key for letter in await store.dead_letters.page(before, PORTION, until)]
        if letters:
            yield letters[:PORTION]
        if len(letters) <= PORTION:
            return
        before = letters[PORTION - 1]


def _entry(store: Store, actor: Actor, action: str) -> AuditEntry:
    """Return an audit entry without subject; the store fills in the message."""
    return actor.did(store.clock.now(), action, "")
