"""The test inbox of a team, with messages delivered by simulators. Deleting only hides messages from the inbox."""

from heliograph.domain.audit.actor import Actor
from heliograph.domain.setup.records import TeamRecord
from heliograph.storage.store import Store


async def clear(store: Store, actor: Actor, team: TeamRecord) -> None:
    await store.inbox.hide_all(team.ref, actor.audit_entry(store.clock.now(), "inbox.clear", team.id, team=team.id))


async def delete(store: Store, actor: Actor, team: TeamRecord, id_: str) -> bool:
    """Delete one message from the inbox; return False if not found."""
    return await store.inbox.hide_message(
        team.ref, id_, actor.audit_entry(store.clock.now(), "inbox.delete", id_, team=team.id)
    )
