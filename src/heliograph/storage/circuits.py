"""Circuit breakers of carriers that are unreachable, shared by all processes."""

from collections.abc import Mapping

import msgspec

from heliograph.domain.delivery.circuit import Circuit
from heliograph.storage.engine.database import Database


class Circuits:
    def __init__(self, database: Database) -> None:
        self._database = database
        self.current: Mapping[str, Circuit] = {}  # by carrier id, as of the last refresh of this process

    async def refresh(self) -> None:
        rows = await self._database.read(lambda tx: tx.run("open_circuits"))
        found = [msgspec.json.decode(body, type=Circuit) for (body,) in rows]
        self.current = {circuit.id: circuit for circuit in found}

    async def change(self, carrier: str, seen: Circuit | None, wanted: Circuit | None) -> bool:
        """Replace the circuit `seen` (None if closed) by `wanted` (None to close).

        Return False if another process changed the circuit since it was read.
        """
        query = "open_circuit" if seen is None else "close_circuit" if wanted is None else "extend_circuit"
        bodies = {"seen": seen, "body": wanted}
        given = {name: msgspec.json.encode(one).decode() for name, one in bodies.items() if one is not None}
        rows = await self._database.write(lambda tx: tx.run(query, carrier=carrier, **given))
        await self.refresh()
        return bool(rows)
