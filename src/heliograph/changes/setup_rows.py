"""Writes changed setup rows and the audit entry of the change in one transaction."""

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
    make_rows: Callable[[Setup], list[Row]],
    detail: str = "",
) -> bool:
    """Write the rows that `make_rows` returns for the current setup; return whether any changed.

    Without rows, no audit entry is written. `action`: audit action, or a function that returns it for the setup.
    `subject`: name or id of the changed object. If `team` is None, the entry belongs to the instance.
    """

    def build_change(setup: Setup, _: int) -> SetupChange:
        action_name = action if isinstance(action, str) else action(setup)
        entry = actor.audit_entry(store.clock.now(), action_name, subject, detail, team=team)
        return SetupChange(rows=make_rows(setup), audit=entry)

    return bool((await store.setup.change(build_change, team)).rows)
