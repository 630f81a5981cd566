"""What failed is sent again as it was, to those who did not get it."""

import msgspec
import pytest

from heliograph.accept.resend import Sent, resend
from heliograph.rules.content import EmailContent
from heliograph.rules.ids import timestamp
from heliograph.rules.limits import DAY_MS
from heliograph.rules.options import Added
from heliograph.storage.store import Store
from tests.accept.verifying import Verifying
from tests.clocks import TestClock
from tests.room import room

pytestmark = pytest.mark.anyio

TO, BLIND = ("failed@simulator.test", "to"), ("bounced@simulator.test", "bcc")


@pytest.mark.parametrize("shown", [[], ["Ada <failed@simulator.test>", "Bo <delivered@simulator.test>"]])
async def test_its_header_says_what_it_said(store: Store, clock: TestClock, shown: list[str]) -> None:
    """Of a mail that came by SMTP to blind copies alone, one stands in the record's `to`, and in no header."""
    verifying = Verifying(store, clock, {})
    await verifying.set_up(0, mode="sandbox")
    platform, later = store.setup.current.platform, timestamp(clock.now() + DAY_MS)
    content = EmailContent(
        from_name=platform.brand, from_address=platform.sender, to=shown, cc=[], subject="Hi", text="x"
    )
    sent = Sent(
        channel="email",
        content=msgspec.json.encode(content),
        template_id=None,
        template_version=None,
        country=None,
        unreached=[TO, BLIND],
        added=Added(scheduled_at=later, expires_at=later, tags={"a": "b"}),
    )
    answer = msgspec.json.decode((await resend(verifying.context, verifying.caller, sent)).body)
    assert (answer["to"], answer["bcc"]) == (TO[0], [BLIND[0]])
    found = await store.messages.facts(1, answer["id"], room)
    assert found and found.content
    assert msgspec.json.decode(found.content, type=EmailContent).to == shown
    record = msgspec.json.decode(found.record)
    assert record["tags"] == {"a": "b"} and not {"scheduled_at", "expires_at"} & record.keys()
