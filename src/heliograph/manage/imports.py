"""Imports of suppressions: a file is kept whole, then any process brings it onto the list, portion by portion."""

import asyncio

from heliograph.rules.audit import Actor
from heliograph.rules.refusals import InvalidRequest
from heliograph.rules.setup.records import TeamRecord
from heliograph.rules.suppression_file import Unreadable, read_lines
from heliograph.storage.store import Store


async def begin(store: Store, actor: Actor, team: TeamRecord, file: bytes) -> str:
    """The import's id."""
    try:
        lines = await asyncio.to_thread(read_lines, file)
    except Unreadable as error:
        raise InvalidRequest(str(error), param="file") from None
    id_ = store.clock.new_id("imp_")
    entry = actor.did(store.clock.now(), "suppression.import", id_, f"{len(lines)} lines", team=team.id)
    await store.imports.begin(id_, team.ref, lines, entry)
    return id_
