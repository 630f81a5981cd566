"""Receipts and texts on their way to the store: acknowledged when stored, else refused: the SMSC repeats them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import structlog

from heliograph.carriers.sms.smpp import status
from heliograph.carriers.sms.smpp.pdu import Pdu
from heliograph.carriers.sms.smpp.session import SmppSession
from heliograph.domain.delivery.outcome import CarrierReport, IncomingText, TextPart

log = structlog.get_logger()

WAITING_MAX = 512

ToStore = Callable[[Sequence[CarrierReport]], Awaitable[object]]
TextsToStore = Callable[[Sequence[IncomingText | TextPart]], Awaitable[object]]
Incoming = TypeVar("Incoming")


class Intake(Generic[Incoming]):
    """Receipts that arrive while the store is busy are stored as one batch."""

    def __init__(self, report: Callable[[Sequence[Incoming]], Awaitable[object]]) -> None:
        self._report = report
        self._waiting: list[tuple[Incoming, SmppSession, Pdu]] = []
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def take(self, receipt: Incoming, session: SmppSession, pdu: Pdu) -> None:
        """Take what a PDU of the session says."""
        if self._closed or len(self._waiting) >= WAITING_MAX:
            session.acknowledge(pdu, status.RX_T_APPN)
            return
        self._waiting.append((receipt, session, pdu))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def close(self, seconds: float) -> None:
        self._closed = True
        if self._task:
            await asyncio.wait([self._task], timeout=seconds)
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                await self._report([receipt for receipt, _, _ in batch])
                answer = status.ROK
            except Exception as error:
                log.warning("receipts not stored", receipts=len(batch), error=type(error).__name__)
                answer = status.RX_T_APPN
            for _, session, pdu in batch:
                session.acknowledge(pdu, answer)
