"""Stores rates per mailbox provider and source address, shared by all processes."""

from collections.abc import Iterable, Sequence
from functools import partial

import msgspec

from heliograph.domain.delivery.provider_rates import (
    Exchange,
    ExchangeResult,
    ProviderKey,
    ProviderRate,
    ProviderState,
    apply_exchange,
    to_provider_rate,
)
from heliograph.domain.setup.carrier_kinds import MxOptions
from heliograph.domain.setup.records import CarrierRecord
from heliograph.runtime.clock import Clock
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.engine.group_commit import GroupCommit
from heliograph.storage.engine.health_probe import Probe

_decoder = msgspec.json.Decoder(ProviderState)


class ProviderStates:
    def __init__(self, database: Database, clock: Clock, owner: str) -> None:
        self._database = database
        self._exchanges: GroupCommit[Exchange, ExchangeResult] = GroupCommit(
            database, lambda tx, items: _exchange_all(tx, items, owner, clock.now())
        )
        self.probe = Probe(self.read_all)

    async def exchange(self, exchange: Exchange) -> ExchangeResult:
        """Report token use to the shared ProviderState and get new tokens; concurrent calls share a transaction."""
        return await self._exchanges.submit(exchange)

    async def read_rates(self, carriers: Iterable[CarrierRecord], now: int) -> list[ProviderRate]:
        """Return the sending rates of these carriers, for every provider and source address used so far."""
        options = {
            carrier.id: msgspec.convert(carrier.options, MxOptions) for carrier in carriers if carrier.kind == "mx"
        }
        states = await self.probe.get() if options else {}
        return [
            to_provider_rate(key, state, options[key.carrier], now)
            for key, state in states.items()
            if key.carrier in options
        ]

    async def read_all(self) -> dict[ProviderKey, ProviderState]:
        rows = await self._database.read(lambda tx: tx.run("provider_states"))
        return {ProviderKey(*key): _decoder.decode(body) for *key, body in rows}


async def _exchange_all(
    tx: Tx, exchanges: Sequence[Exchange], process: str, now: int
) -> list[ExchangeResult | Exception]:
    keys = sorted({exchange.key for exchange in exchanges})
    lock = partial(tx.run, "lock_provider_states", keys=keys)
    rows = await lock()
    if len(rows) < len(keys):
        await tx.run("insert_provider_states", keys=keys)
        rows = await lock()
    states = {ProviderKey(*key): _decoder.decode(body) for *key, body in rows}
    results = list[ExchangeResult | Exception]()
    for exchange in exchanges:
        states[exchange.key], result = apply_exchange(states[exchange.key], exchange, process, now)
        results.append(result)
    state_rows = [(*key, msgspec.json.encode(state).decode()) for key, state in states.items()]
    await tx.run("update_provider_states", states=state_rows)
    return results
