"""Stores receipts and inbound messages in batches.

Each PDU is acknowledged once it is stored. Otherwise it is rejected with a temporary error, and the SMSC sends it
again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import structlog

from heliograph.carriers.sms.smpp import status
from heliograph.carriers.sms.smpp.pdu import Pdu
from heliograph.carriers.sms.smpp.session import SmppSession
from heliograph.domain.delivery.outcome import CarrierReport, IncomingText, TextPart

log = structlog.get_logger()

QUEUED_MAX = 512  # maximum queued items; further ones are rejected

StoreReports = Callable[[Sequence[CarrierReport]], Awaitable[object]]
StoreTexts = Callable[[Sequence[IncomingText | TextPart]], Awaitable[object]]
Item = TypeVar("Item")


class Intake(Generic[Item]):
    """Queue in front of the store. Items that arrive during a write are stored together in the next one."""

    def __init__(self, store: Callable[[Sequence[Item]], Awaitable[object]]) -> None:
        self._store = store
        self._queue: list[tuple[Item, SmppSession, Pdu]] = []
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, item: Item, session: SmppSession, pdu: Pdu) -> None:
        """Queue an item parsed from `pdu`; if the queue is full or closed, reject the PDU with a temporary error."""
        if self._closed or len(self._queue) >= QUEUED_MAX:
            session.acknowledge(pdu, status.RX_T_APPN)
            return
        self._queue.append((item, session, pdu))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._store_queued())

    async def close(self, seconds: float) -> None:
        """Accept no more items, and wait at most `seconds` until the queued ones are stored."""
        self._closed = True
        if self._task:
            await asyncio.wait([self._task], timeout=seconds)
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _store_queued(self) -> None:
        while self._queue:
            batch, self._queue = self._queue, []
            try:
                await self._store([item for item, _, _ in batch])
                response_status = status.ROK
            except Exception as error:
                log.warning("receipts not stored", receipts=len(batch), error=type(error).__name__)
                response_status = status.RX_T_APPN
            for _, session, pdu in batch:
                session.acknowledge(pdu, response_status)
