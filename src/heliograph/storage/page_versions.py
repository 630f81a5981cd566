"""Reads version tokens of pages, which like ETags change only with the data that the page shows.

Pages that refresh themselves compare tokens.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from heliograph.domain.ids import PREFIXES
from heliograph.domain.limits import HOUR_MS
from heliograph.runtime.clock import Clock
from heliograph.storage.engine.database import Database, Tx

SHOWN_MAX = 50  # number of newest rows of a list in which changes are detected


class MessageVersion(msgspec.Struct, frozen=True):
    """Version token of a message page."""

    version: str  # changes with the timeline
    has_ended: bool


async def read_message_version(tx: Tx, team: int, id_: str) -> MessageVersion | None:
    rows = await tx.run("message_version", team=team, id=id_)
    return MessageVersion(f"{rows[0][1] or 0}", rows[0][0] is not None) if rows else None


class PageVersions:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def message(self, team: int, id_: str) -> MessageVersion | None:
        return await self._database.read(lambda tx: read_message_version(tx, team, id_))

    async def team_lists(self, team: int) -> dict[str, str]:
        """Return name → version token, for the parts of a team's dashboard pages, such as its list of messages."""
        now = self._clock.now()
        last_ids = {channel: f"{PREFIXES[channel]}~" for channel in ("email", "sms")}  # upper bounds of ids
        params = {"team": team, "now": now, "hour": now - now % HOUR_MS - HOUR_MS, "shown": SHOWN_MAX}
        (row,) = await self._database.read(lambda tx: tx.run("team_lists_version", **params, **last_ids))
        return {
            "accepted": _version(row[:3]),
            "events": _version(row[3:5]),
            "account": _version(row[5:8]),
            "cleared": _version(row[8:9]),
            "verifications": _version(row[9:]),
        }

    async def webhook_page(self, webhook: str) -> dict[str, str]:
        (row,) = await self._database.read(lambda tx: tx.run("webhook_version", webhook=webhook, shown=SHOWN_MAX))
        return {"deliveries": _version(row)}

    async def queues_page(self) -> dict[str, str]:
        (row,) = await self._database.read(lambda tx: tx.run("queues_version", most=SHOWN_MAX * 20))
        return {"queues": _version(row)}


def _version(values: Iterable[Any]) -> str:
    return "-".join("" if value is None else str(value) for value in values)
