"""The inbox of a team: what simulators delivered, hidden when it is cleared. The messages themselves are kept."""

from heliograph.rules.audit import Actor
from heliograph.rules.setup.records import TeamRecord
from heliograph.storage.store import Store


async def clear(store: Store, actor: Actor, team: TeamRecord) -> None:
    await store.inbox.clear(team.ref, actor.did(store.clock.now(), "inbox.clear", team.id, team=team.id))
