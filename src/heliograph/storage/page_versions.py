"""Version tokens of pages, like ETags: a token changes only with the data that the page shows.

Pages that refresh themselves compare tokens.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from heliograph.domain.ids import PREFIXES
from heliograph.domain.limits import HOUR_MS
from heliograph.runtime.clock import Clock
from heliograph.storage.engine.database import Database, Tx

SHOWN = 50  # newest rows of a list whose changes are detected


class MessagePulse(msgspec.Struct, frozen=True):
    """Version token of a message page."""

    word: str  # changes with the timeline
    has_ended: bool


async def message_pulse(tx: Tx, team: int, id_: str) -> MessagePulse | None:
    rows = await tx.run("message_pulse", team=team, id=id_)
    return MessagePulse(f"{rows[0][1] or 0}", rows[0][0] is not None) if rows else None


class Pulses:
    """Reads version tokens."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def message(self, team: int, id_: str) -> MessagePulse | None:
        return await self._database.read(lambda tx: message_pulse(tx, team, id_))

    async def team(self, team: int) -> dict[str, str]:
        """Return the version tokens of the team's lists and overview, by name."""
        now = self._clock.now()
        spans = {channel: f"{PREFIXES[channel]}~" for channel in ("email", "sms")}  # WhatsApp ids sort last
        given = {"team": team, "now": now, "hour": now - now % HOUR_MS - HOUR_MS, "shown": SHOWN}
        (row,) = await self._database.read(lambda tx: tx.run("team_pulse", **given, **spans))
        return {
            "accepted": _word(row[:3]),
            "events": _word(row[3:5]),
            "account": _word(row[5:8]),
            "cleared": _word(row[8:9]),
            "verifications": _word(row[9:]),
        }

    async def webhook(self, webhook: str) -> dict[str, str]:
        (row,) = await self._database.read(lambda tx: tx.run("webhook_pulse", webhook=webhook, shown=SHOWN))
        return {"deliveries": _word(row)}

    async def queues(self) -> dict[str, str]:
        (row,) = await self._database.read(lambda tx: tx.run("queues_pulse", most=SHOWN * 20))
        return {"queues": _word(row)}


def _word(values: Iterable[Any]) -> str:
    return "-".join("" if value is None else str(value) for value in values)
