"""What holds for every team: how much a sandbox may send for real, and the price list that approvals begin with."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from heliograph.manage.fields import check_fields
from heliograph.rules.audit import Actor
from heliograph.rules.setup.file import read_platform_fields
from heliograph.rules.setup.snapshot import PLATFORM_ID, Setup, to_row
from heliograph.storage.setup import SetupChange
from heliograph.storage.store import Store


async def change(store: Store, actor: Actor, given: Mapping[str, Any]) -> None:
    """These fields, as a setup file writes them."""
    fields, errors = read_platform_fields(given)
    check_fields(errors)
    detail = ", ".join(f"{name}={value}" if isinstance(value, int) else name for name, value in fields.items())

    def decide(setup: Setup, _: int) -> SetupChange:
        after = replace(setup.platform, **fields)
        if after == setup.platform:
            return SetupChange()
        entry = actor.did(store.clock.now(), "platform.change", PLATFORM_ID, detail)
        return SetupChange(rows=[to_row("platform", PLATFORM_ID, after, None)], audit=entry)

    await store.setup.change(decide)
