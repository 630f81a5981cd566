"""Opens the carriers that are set up, and closes those that no longer are."""

from heliograph.channels.carrier import Carriers
from heliograph.deliver.duties.repeat import repeat
from heliograph.storage.store import Store

EVERY_S = 1.0


async def keep_carriers(store: Store, carriers: Carriers) -> None:
    await repeat(EVERY_S, lambda: carriers.keep(store.setup.current.carriers))
