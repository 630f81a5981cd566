"""Pages of inbound messages: mail in the sandboxed frame of the inbox, SMS and WhatsApp (contract 17)."""

from typing import Any

import msgspec
import pytest

from heliograph.domain.delivery.outcome import IncomingText
from heliograph.domain.mail.address import parse_address
from heliograph.domain.setup.records import SenderId, TeamRecord
from heliograph.inbound.policy.inbound_mail import Authentication, full_texts, parse_mail, to_event_record, to_record
from heliograph.inbound.store.inbound_mail import NewInboundMail
from heliograph.inbound.store.inbound_texts import TextSource
from heliograph.storage.store import Store
from tests.dashboard.inside import Pages, write_records
from tests.storage.test_idempotency import make_context

pytestmark = pytest.mark.anyio

TEAM, HERE = "team_acme", "/dashboard/teams/team_acme/received"
MAIL = b"""From: Ann <ann@example.org>\r
To: support@in.acme.test\r
Subject: <b>Hi</b>\r
Message-ID: <1@example.org>\r
MIME-Version: 1.0\r
Content-Type: multipart/mixed; boundary=b\r
\r
--b\r
Content-Type: text/html\r
\r
<p onclick="x()">Thanks</p><script>alert(1)</script>\r
--b\r
Content-Type: text/html; name=evil.html\r
Content-Disposition: attachment; filename=evil.html\r
\r
<script>alert(2)</script>\r
--b--\r
"""


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    sender = SenderId(team=TEAM, country="US", value="+12025550123", approved=True)
    await write_records(
        store,
        ("team", TEAM, TeamRecord(ref=1, id=TEAM, name="Acme", mode="live"), TEAM),
        ("sender_id", f"{TEAM}/US", sender, TEAM),
    )
    return Pages(make_context(store, clock))


async def store_inbound_mail(store: Store, clock: Any, answers: str | None = None) -> str:
    id_: str = clock.new_id("rcv_")
    mail = parse_mail(MAIL, sender="ann@example.org", recipients=["support@in.acme.test"])
    address = parse_address("support@in.acme.test")
    assert address
    record = to_record(id_, mail, [address], answers, Authentication(spf="pass"))
    new = NewInboundMail(
        id=id_, team=1, sender="ann@example.org", size=len(MAIL), automatic=False, daily_octets_max=0,
        record=msgspec.json.encode(to_event_record(record)).decode(),
        body=msgspec.json.encode(full_texts(record)).decode(),
    )  # fmt: skip
    await store.inbound_mail.insert(new, await store.inbound_mail.store_raw(MAIL))
    return id_


async def test_inbound_mail_page_shows_parts(pages: Pages, store: Store, clock: Any) -> None:
    id_ = await store_inbound_mail(store, clock, "eml_7")
    listed = await pages.get(HERE, "viewer")
    assert "ann@example.org" in listed.text and "&lt;b&gt;Hi&lt;/b&gt;" in listed.html and "Reply" in listed.text
    response = await pages.get(f"{HERE}/{id_}", "viewer")
    assert "SPF: pass" in response.text and "DMARC: none" in response.text and "evil.html" in response.text
    assert f"/dashboard/teams/{TEAM}/messages/eml_7" in response.html and "alert(" not in response.html
    headers = await pages.get(f"{HERE}/{id_}?view=headers", "viewer")
    assert "Message-ID" in headers.text and "<1@example.org>" in headers.text
    eml = await pages.get(f"{HERE}/{id_}/eml", "viewer")
    assert eml.status == 200 and f"{id_}.eml" in eml.headers["content-disposition"]


async def test_html_of_inbound_mail_is_sandboxed(pages: Pages, store: Store, clock: Any) -> None:
    id_ = await store_inbound_mail(store, clock)
    assert 'sandbox src="' in (await pages.get(f"{HERE}/{id_}?view=html", "viewer")).html
    frame = await pages.get(f"{HERE}/{id_}/html", "viewer")
    assert "sandbox" in frame.headers["content-security-policy"]
    assert "default-src 'none'" in frame.headers["content-security-policy"]
    file = await pages.get(f"{HERE}/{id_}/files/att_1", "viewer")
    assert file.status == 200
    assert "attachment" in file.headers["content-disposition"] and "sandbox" in file.headers["content-security-policy"]


async def test_inbound_texts_and_their_events_are_listed(pages: Pages, store: Store, clock: Any) -> None:
    text = IncomingText(id="1", sender="+14155550100", to="+12025550123", text="<i>Where</i> is it?")
    await store.inbound_texts.store(TextSource(carrier="c", channel="sms"), [text])
    await store_inbound_mail(store, clock)
    response = await pages.get(f"{HERE}?tab=texts", "viewer")
    assert "+14155550100" in response.text and "&lt;i&gt;Where" in response.html
    events = await pages.get(f"/dashboard/teams/{TEAM}/events", "viewer")
    assert "support@in.acme.test" in events.text and "sms.received" in events.text


@pytest.mark.parametrize("path", ["/rcv_1", "/rcv_1/html", "/rcv_1/eml", "/rcv_1/files/att_1", "?tab=x"])
async def test_missing_inbound_mail_returns_404(pages: Pages, path: str) -> None:
    assert (await pages.get(HERE + path, "viewer")).status == 404
    assert (await pages.get(HERE, "viewer")).status == 200
