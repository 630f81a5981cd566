"""Changes rows of the setup together with an audit entry."""

from collections.abc import Callable

from heliograph.domain.audit.actor import Actor
from heliograph.domain.setup.snapshot import Row, Setup
from heliograph.storage.setup import SetupChange
from heliograph.storage.store import Store


async def change_rows(
    store: Store,
    actor: Actor,
    team: str | None,
    action: str | Callable[[Setup], str],
    subject: str,
    rows_of: Callable[[Setup], list[Row]],
    detail: str = "",
) -> bool:
    """Change rows of the setup; return whether any changed.

    Without rows, no audit entry is written. If `team` is None, the entry belongs to the instance.
    """

    def decide(setup: Setup, _: int) -> SetupChange:
        named = action if isinstance(action, str) else action(setup)
        entry = actor.did(store.clock.now(), named, subject, detail, team=team)
        return SetupChange(rows=rows_of(setup), audit=entry)

    return bool((await store.setup.change(decide, team)).rows)
