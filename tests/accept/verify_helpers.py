"""A live team that sends codes through carriers of the test, on a real store and without HTTP."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from heliograph.accept.verify_check import CheckRecord, CheckRequest, check_verification
from heliograph.accept.verify_start import (
    VerificationRecord,
    VerifyRequest,
    cancel_verification,
    find_verification,
    resend_verification,
    start_verification,
    to_record,
)
from heliograph.carrier_failover import CarrierFailover
from heliograph.carriers.contract import Carrier, Carriers, OutboundMessage
from heliograph.domain.setup import records
from heliograph.domain.setup.snapshot import PLATFORM_ID, Row, to_row
from heliograph.storage.setup import NewTeam
from heliograph.storage.store import Store
from tests.setup_helpers import set_up
from tests.storage.test_idempotency import make_context

PRICE = 50_000
CHANNEL: dict[str, records.Channel] = {"whatsapp": "whatsapp", "email": "email"}
KEY = records.Key(id="key", team="team_acme", name="server", hash="")


class VerifyEnvironment:
    """`lines` are carriers in order of priority; `whatsapp` and `email` serve these channels, the others SMS."""

    def __init__(self, store: Store, clock: Any, lines: Mapping[str, Carrier]) -> None:
        self.failover = CarrierFailover(store, Carriers(lambda record: lines[record.id]), clock)
        self.context = msgspec.structs.replace(make_context(store, clock), failover=self.failover, code_key=b"k")
        self._store = store
        self._lines = lines

    async def set_up(
        self, credit: int, verify: records.VerifyLimits | None = None, rows: Sequence[Row] = (), mode: Any = "live"
    ) -> None:
        platform = records.Platform(brand="Acme", verify_price={"USD": PRICE})
        record = records.TeamRecord(
            ref=1, id=KEY.team, name="Acme", mode=mode, features=("verify",), verify=verify or records.VerifyLimits()
        )
        carriers = [
            records.CarrierRecord(id=id_, channel=CHANNEL.get(id_, "sms"), kind="test", priority=place)
            for place, id_ in enumerate(self._lines)
        ]
        rows = [
            *rows,
            to_row("platform", PLATFORM_ID, platform, None),
            *(to_row("carrier", carrier.id, carrier, None) for carrier in carriers),
            to_row("team", record.id, record, record.id),
            to_row("key", KEY.id, KEY, record.id),
        ]
        await set_up(self._store, rows=rows, new_teams=[NewTeam(1, credit)])

    async def serve_only(self, carrier: str, country: str) -> None:
        row = to_row(
            "carrier",
            carrier,
            records.CarrierRecord(id=carrier, channel="sms", kind="test", countries=(country,)),
            None,
        )
        await set_up(self._store, rows=[row])

    @property
    def caller(self) -> records.Caller:
        return self._store.setup.current.callers[KEY.id]

    async def start(
        self, to: str, channel: str | list[str] | None = None, locale: str | None = None
    ) -> VerificationRecord:
        request = VerifyRequest(to=to, channel=channel, locale=locale)
        answer = await start_verification(self.context, self.caller, request, None)
        return msgspec.json.decode(answer.body, type=VerificationRecord)

    async def resend(self, id_: str) -> VerificationRecord:
        answer = await resend_verification(self.context, self.caller, id_, None)
        return msgspec.json.decode(answer.body, type=VerificationRecord)

    async def read(self, id_: str) -> VerificationRecord:
        return to_record(await find_verification(self.context, self.caller, id_))

    async def cancel(self, id_: str) -> VerificationRecord:
        return await cancel_verification(self.context, self.caller, id_)

    async def check(self, id_: str, code: str) -> CheckRecord:
        return await check_verification(self.context, self.caller, id_, CheckRequest(code=code))


def code_in_message(message: OutboundMessage) -> str:
    """Return the code in the message that the phone's owner receives."""
    return str(re.findall(r"\b[0-9]{6}\b", message.content.decode())[0])
