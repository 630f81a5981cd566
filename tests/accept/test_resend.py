"""A failed message is resent with its original content, to the recipients that were not reached."""

from typing import Any

import msgspec
import pytest

from heliograph.accept.resend import Undelivered, resend
from heliograph.domain.delivery.content import EmailContent, WhatsappContent
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import DAY_MS
from heliograph.domain.sending.send_options import ExtraFields
from heliograph.domain.setup.records import LocaleParts, Template
from heliograph.domain.setup.snapshot import to_row
from heliograph.storage.store import Store
from tests.accept.verify_helpers import KEY, VerifyEnvironment
from tests.clocks import TestClock
from tests.fake_budget import room

pytestmark = pytest.mark.anyio

TO, BLIND = ("failed@simulator.test", "to"), ("bounced@simulator.test", "bcc")


@pytest.mark.parametrize("shown", [[], ["Ada <failed@simulator.test>", "Bo <delivered@simulator.test>"]])
async def test_resent_message_has_the_original_header(store: Store, clock: TestClock, shown: list[str]) -> None:
    """For a mail submitted by SMTP with Bcc recipients only, `to` of the record has one of them, and no header does."""
    verifying = VerifyEnvironment(store, clock, {})
    await verifying.set_up(0, mode="sandbox")
    platform, later = store.setup.current.platform, timestamp(clock.now() + DAY_MS)
    content = EmailContent(
        from_name=platform.brand, from_address=platform.sender, to=shown, cc=[], subject="Hi", text="x"
    )
    sent = Undelivered(
        channel="email",
        content=msgspec.json.encode(content),
        template_id=None,
        template_version=None,
        country=None,
        unreached=[TO, BLIND],
        extra_fields=ExtraFields(scheduled_at=later, expires_at=later, tags={"a": "b"}),
    )
    answer = msgspec.json.decode((await resend(verifying.context, verifying.caller, sent)).body)
    assert (answer["to"], answer["bcc"]) == (TO[0], [BLIND[0]])
    result = await store.messages.get_row(1, answer["id"], room)
    assert result and result.content
    assert msgspec.json.decode(result.content, type=EmailContent).to == shown
    record = msgspec.json.decode(result.record)
    assert record["tags"] == {"a": "b"} and not {"scheduled_at", "expires_at"} & record.keys()


async def test_resent_message_keeps_its_language_and_template_versions(store: Store, clock: TestClock) -> None:
    template = Template(
        id="tpl_a",
        team=KEY.team,
        channel="whatsapp",
        name="parcel",
        version=3,
        category="UTILITY",
        body="Parcel {{customer.x}}",
        variables=("x",),
        locales={"de": LocaleParts(body="Paket {{customer.x}}", language="de", upstream_name="paket")},
    )
    verifying = VerifyEnvironment(store, clock, {})
    await verifying.set_up(0, rows=[to_row("template", template.id, template, KEY.team)], mode="sandbox")
    content = WhatsappContent(template="paket", language="de", parameters=["1"], body="Paket 1")
    recorded: dict[str, Any] = {"template_version": 3, "locale": "de"}
    sent = Undelivered(
        channel="whatsapp",
        content=msgspec.json.encode(content),
        template_id="tpl_a",
        template_version=3,
        country=None,
        unreached=[("+15005550006", "to")],
        extra_fields=ExtraFields(**recorded),
    )
    answer = msgspec.json.decode((await resend(verifying.context, verifying.caller, sent)).body)
    result = await store.messages.get_row(1, answer["id"], room)
    assert result and result.content
    assert msgspec.json.decode(result.content, type=WhatsappContent) == content
    assert msgspec.json.decode(result.record).items() >= recorded.items()
