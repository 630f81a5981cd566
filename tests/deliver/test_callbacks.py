"""Callbacks of carriers: when the last verified one came is kept."""

import pytest

from heliograph.channels.carrier import Callback, CallbackAnswer, Carrier, Carriers, Parcel
from heliograph.deliver.reports import take_callback
from heliograph.rules.delivery.outcome import Accepted, Outcome
from heliograph.rules.setup.records import CarrierRecord
from heliograph.rules.setup.snapshot import to_row
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.entries import set_up

pytestmark = pytest.mark.anyio


class Answering(Carrier):
    def __init__(self, answer: CallbackAnswer | None) -> None:
        self._answer = answer

    async def hand_over(self, parcel: Parcel) -> Outcome:
        return Accepted()

    def read_callback(self, callback: Callback) -> CallbackAnswer | None:
        return self._answer


async def no_body() -> bytes:
    return b""


@pytest.mark.parametrize(
    ("method", "answer", "is_kept"),
    [
        ("POST", CallbackAnswer(), True),
        ("POST", CallbackAnswer(status=401), False),
        ("POST", None, False),
        ("GET", CallbackAnswer(), False),  # Meta asks whose address it is
    ],
)
async def test_a_verified_callback_is_noted(
    store: Store, clock: TestClock, method: str, answer: CallbackAnswer | None, is_kept: bool
) -> None:
    await set_up(store, rows=[to_row("carrier", "c", CarrierRecord(id="c", channel="sms", kind="http"), None)])
    callback = Callback(method=method, url="", query={}, headers={}, body=b"", now=clock.now())
    await take_callback(store, Carriers(lambda _: Answering(answer)), "c", callback, no_body)
    assert await store.carrier_use.callbacks() == ({"c": callback.now} if is_kept else {})
