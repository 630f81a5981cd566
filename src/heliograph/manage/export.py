"""Exports all data that a team's records hold about an email address or a phone number, for a data subject request."""

import asyncio
from typing import Any

from heliograph.domain.audit.actor import Actor
from heliograph.domain.ids import timestamp
from heliograph.domain.operations.erasure import short_name
from heliograph.domain.setup.records import Team
from heliograph.manage import erase
from heliograph.storage.erase import Tell
from heliograph.storage.store import Store


async def export(
    store: Store, actor: Actor, team: Team, given: str, tell: Tell = lambda what, count: None
) -> dict[str, Any]:
    """Return all data about an address.

    An audit entry records the export, with a part of the hash instead of the address.
    """
    wanted, record, now = await erase.wanted_of(store, team, given), team.record, store.clock.now()
    person = await store.people.find(wanted.address)
    role = (await store.people.roles(person.id)).get(record.id) if person else None
    await asyncio.sleep(erase.SETTLE_S)
    held = await store.exports.all_of(wanted, now, tell)
    detail = f"messages: {len(held['messages'])}"
    await store.audit.add(actor.did(now, "address.export", short_name(wanted.name), detail, team=record.id))
    return {
        "address": wanted.address,
        "team": record.id,
        "exported_at": timestamp(now),
        "is_sandbox_recipient": wanted.address in team.recipients,
        "account": {"id": person.id, "name": person.name, "role": role} if person and role else None,
        "setup": [{"kind": kind, "id": id_} for (kind, id_), _ in erase.named_in(store.setup.current, wanted)],
        **held,
    }
