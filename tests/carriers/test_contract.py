"""Cache of carrier instances: one carrier with invalid settings does not affect the others."""

from pathlib import Path

import pytest

from heliograph.carriers.contract import Carrier, Carriers, InvalidCarrier, OutboundMessage
from heliograph.domain.delivery.outcome import Accepted, Outcome
from heliograph.domain.setup.records import CarrierRecord

pytestmark = pytest.mark.anyio


class Connected(Carrier):
    opened = False

    async def send_message(self, message: OutboundMessage) -> Outcome:
        return Accepted(carrier_id="1")

    def open(self) -> None:
        self.opened = True


def build(record: CarrierRecord) -> Carrier:
    if record.id == "broken":
        raise ValueError("callback_cert is neither a certificate in PEM nor the path of one")
    return Connected()


async def test_an_invalid_carrier_works_once_its_file_is_restored(tmp_path: Path) -> None:
    certificate = tmp_path / "cert.pem"

    def read(_: CarrierRecord) -> Carrier:
        if not certificate.exists():
            raise ValueError("callback_cert is neither a certificate in PEM nor the path of one")
        return Connected()

    record = CarrierRecord(id="http", channel="sms", kind="http")
    carriers = Carriers(read)
    await carriers.sync([record])
    assert isinstance(await carriers.get(record), InvalidCarrier)
    certificate.touch()
    await carriers.sync([record])
    carrier = await carriers.get(record)
    assert isinstance(carrier, Connected) and carrier.opened
    await carriers.sync([record])
    assert await carriers.get(record) is carrier


async def test_a_carrier_with_invalid_settings_keeps_no_other_closed() -> None:
    records = [CarrierRecord(id=id_, channel="sms", kind="http") for id_ in ("broken", "works")]
    carriers = Carriers(build)
    await carriers.sync(records)
    broken, works = [await carriers.get(record) for record in records]
    assert isinstance(broken, InvalidCarrier) and isinstance(works, Connected)
    assert works.opened
