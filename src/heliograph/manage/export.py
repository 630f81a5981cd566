"""Exports all data that a team's records hold about an email address or a phone number, for a data subject request."""

import asyncio
from typing import Any

from heliograph.domain.audit.actor import Actor
from heliograph.domain.ids import timestamp
from heliograph.domain.operations.erasure import short_hash
from heliograph.domain.setup.records import Team
from heliograph.manage import erase
from heliograph.storage.erase import ProgressCallback
from heliograph.storage.store import Store


async def export(
    store: Store, actor: Actor, team: Team, raw_address: str, on_progress: ProgressCallback = lambda step, count: None
) -> dict[str, Any]:
    """Return all data of the team's records about an address; the audit entry has a part of the address's hash."""
    target, record, now = await erase.build_target(store, team, raw_address), team.record, store.clock.now()
    person = await store.people.find(target.address)
    role = (await store.people.get_roles(person.id)).get(record.id) if person else None
    await asyncio.sleep(erase.SETTLE_S)
    data = await store.exports.export(target, now, on_progress)
    detail = f"messages: {len(data['messages'])}"
    await store.audit.add(
        actor.audit_entry(now, "address.export", short_hash(target.address_hash), detail, team=record.id)
    )
    return {
        "address": target.address,
        "team": record.id,
        "exported_at": timestamp(now),
        "is_sandbox_recipient": target.address in team.recipients,
        "account": {"id": person.id, "name": person.name, "role": role} if person and role else None,
        "setup": [
            {"kind": kind, "id": id_} for (kind, id_), _ in erase.records_with_address(store.setup.current, target)
        ],
        **data,
    }
