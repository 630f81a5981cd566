"""Settings for all teams, such as the daily sandbox quota and the default price list of approvals."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from heliograph.changes.fields import check_fields
from heliograph.changes.setup_rows import change_rows
from heliograph.domain.audit.actor import Actor
from heliograph.domain.setup.setup_file import read_platform_fields
from heliograph.domain.setup.snapshot import PLATFORM_ID, Row, Setup, to_row
from heliograph.storage.store import Store


async def change_platform(store: Store, actor: Actor, changes: Mapping[str, Any]) -> None:
    """Change the platform's fields in `changes`, which have the format of a setup file."""
    fields, errors = read_platform_fields(changes)
    check_fields(errors)
    detail = ", ".join(f"{name}={value}" if isinstance(value, int) else name for name, value in fields.items())

    def make_rows(setup: Setup) -> list[Row]:
        after = replace(setup.platform, **fields)
        return [] if after == setup.platform else [to_row("platform", PLATFORM_ID, after, None)]

    await change_rows(store, actor, None, "platform.change", PLATFORM_ID, make_rows, detail)
