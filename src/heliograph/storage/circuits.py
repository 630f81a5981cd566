"""Circuit breakers of unreachable carriers, shared by all processes."""

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
        circuits = [msgspec.json.decode(body, type=Circuit) for (body,) in rows]
        self.current = {circuit.id: circuit for circuit in circuits}

    async def replace(self, carrier: str, previous: Circuit | None, new: Circuit | None) -> bool:
        """Replace the stored circuit of a carrier; None means that the circuit is closed.

        Returns False if another process changed the circuit since it was read.
        """
        query = "open_circuit" if previous is None else "close_circuit" if new is None else "extend_circuit"
        bodies = {"seen": previous, "body": new}
        params = {
            name: msgspec.json.encode(circuit).decode() for name, circuit in bodies.items() if circuit is not None
        }
        rows = await self._database.write(lambda tx: tx.run(query, carrier=carrier, **params))
        await self.refresh()
        return bool(rows)
