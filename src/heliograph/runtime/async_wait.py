"""Waits for events and tasks with a timeout."""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from heliograph.runtime.deadline import within


async def wait_event(event: asyncio.Event, within_s: float) -> bool:
    """Wait for the event; return False if it is not set within `within_s` seconds."""
    with suppress(TimeoutError), within(within_s):
        return await event.wait()
    return False


async def wait_for_all(
    tasks: "Collection[asyncio.Task[Any]]", limit_s: float | None = None
) -> "set[asyncio.Task[Any]]":
    """Wait for `tasks`, at most `limit_s`; return the tasks that are still running."""
    return (await asyncio.wait(tasks, timeout=limit_s))[1] if tasks else set()
