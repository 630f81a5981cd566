"""Batches do not block other requests of the process."""

import asyncio
import time
from typing import Any

import pytest

from heliograph.accept.batch import YIELD_AFTER_S, send_batch
from heliograph.domain.refusals import InvalidRequest
from heliograph.storage.store import Store
from tests.accept.verify_helpers import VerifyEnvironment
from tests.clocks import TestClock

pytestmark = pytest.mark.anyio


async def test_slow_batch_yields_to_other_requests(store: Store, clock: TestClock) -> None:
    verifying = VerifyEnvironment(store, clock, {})
    await verifying.set_up(0)
    sends, turns = 5, 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def prepare(*_: Any) -> Any:
        time.sleep(2 * YIELD_AFTER_S)  # as rendering a large template does
        before.append(turns)
        raise InvalidRequest()

    before: list[int] = []
    beside = asyncio.create_task(other())
    await send_batch(
        verifying.context,
        verifying.caller,
        [lambda: None] * sends,
        prepare=prepare,
        strict=False,
        respond=lambda id_, told: b"{}",
        idempotency_key=None,
    )
    beside.cancel()
    assert len(set(before)) == sends
