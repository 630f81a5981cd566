"""Domains, display names, sender ids and sandbox recipients, from the request until they can be used."""

import asyncio
import re
import threading
from collections.abc import Iterator
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from playwright.sync_api import expect

from tests.carriers.dns_peer import DnsPeer, Zone
from tests.dashboard.conftest import Shoot, Site, assert_fits
from tests.journeys.phones import carrier
from tests.journeys.smtp_sink import Sink
from tests.service import Service

ACME = "/dashboard/teams/team_acme/senders"
SANDBOX = "/dashboard/teams/team_sandbox/senders"


@pytest.fixture(scope="module")
def peer() -> Iterator[DnsPeer]:
    """A DNS server in a thread, because browser calls block the test's thread."""
    dns_peer = DnsPeer(Zone())
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(dns_peer.__aenter__(), loop).result(5)
    yield dns_peer
    asyncio.run_coroutine_threadsafe(dns_peer.__aexit__(None, None, None), loop).result(5)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, chromium: Any, peer: DnsPeer) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp("senders")
    with Service(f"sqlite:///{folder / 'heliograph.db'}", folder / "data", resolver=peer.address) as service:
        service.apply()
        service.start()
        yield service


def publish_records(peer: DnsPeer, records: list[dict[str, str]]) -> None:
    for record in records:
        strings = [record["value"][at : at + 255] for at in range(0, len(record["value"]), 255)]
        value = f"{record['value']}." if record["type"] == "MX" else " ".join(f'"{part}"' for part in strings)
        peer.zone[record["name"], record["type"]] = [value]


def test_domain_is_added_verified_and_approved(site: Site, peer: DnsPeer, shoot: Shoot) -> None:
    """The page updates by itself after the records are set. test_new_user covers phone width."""
    name = "shop2.acme.test"
    page = site.open("who@acme.test", "--team", "team_acme", "--role", "developer", path=ACME)
    page.get_by_role("link", name="New domain").click()
    page.get_by_label("Domain", exact=True).fill("https://shop.acme.test/")
    page.get_by_role("button", name="Continue").click()
    assert "without https://" in page.get_by_role("alert").inner_text()
    page.get_by_label("Domain", exact=True).fill(name.capitalize())
    page.get_by_label("Brand name").fill("Acme Shop")
    page.get_by_role("button", name="Continue").click()
    expect(page.locator(".flash")).to_contain_text(f"{name} added")
    expect(page.locator(".wizard [aria-current=step]")).to_contain_text("DNS records")
    expect(page.locator("#record-list .badge", has_text="Missing")).to_have_count(6)
    assert_fits(page, shoot, "domain-added")

    id_ = page.url.rpartition("/")[2]
    records = site.service.get(f"/v1/domains/{id_}").json["records"]
    publish_records(peer, records)
    peer.zone[f"_dmarc.{name}", "TXT"] = ['"v=DMARC1; p=reject; adkim=s"']
    spf = next(record for record in records if record["purpose"] == "spf")
    peer.zone[spf["name"], "TXT"] = ['"v=spf1 -all"']
    expect(page.locator("#record-list .badge", has_text="Found")).to_have_count(6)
    expect(page.locator(".fix")).to_contain_text("Found: v=spf1 -all")
    expect(page.locator("#looks")).to_contain_text("Checks every 5 seconds")
    assert_fits(page, shoot, "domain-partly")

    publish_records(peer, [spf])
    expect(page.locator("#standing")).to_contain_text("Waiting for an operator's approval")
    expect(page.get_by_text("Email from this domain passes DMARC.")).to_be_visible()
    assert page.get_by_role("button", name="Approve").count() == 0
    assert_fits(page, shoot, "domain-verified")

    operator = site.open("op-who@acme.test", "--operator", path=f"{ACME}/domains/{id_}")
    operator.get_by_role("button", name="Approve").click()
    expect(operator.locator("#standing")).to_contain_text("Email from this domain is sent as Acme Shop.")
    expect(page.locator("#standing")).to_contain_text("Ready to send")  # without being reloaded
    sent = site.service.post("/v1/emails", {"from": f"a@{name}", "to": "b@example.com", "subject": "s", "text": "t"})
    assert sent.status == 202, sent.json


def test_domain_records_are_shown_in_dns_panel_formats(site: Site) -> None:
    """Names relative to the selected zone, a separate priority, long values whole and split, and the zone file."""
    page = site.open("panel@acme.test", "--team", "team_acme", "--role", "viewer", path=f"{ACME}/domains/dom_acme_news")
    rows = page.locator("#record-list tbody tr:not(.fix)")
    expect(rows.first.locator(".name code")).to_have_text("_heliograph.news")
    expect(rows.first.locator(".name .full")).to_have_text("_heliograph.news.acme.test")
    mx = rows.filter(has_text="return path")
    expect(mx.locator(".value code")).to_have_text(["10", "mail.heliograph.test"])
    rsa = rows.filter(has_text="as 2 strings")
    rsa.locator("summary").click()
    value, split = (rsa.locator("pre code").nth(number).inner_text() for number in (0, 1))
    assert value.startswith("v=DKIM1; k=rsa; p=") and split.replace('" "', "").strip('"') == value
    with page.expect_download() as begun:
        page.get_by_role("link", name="Zone file").click()
    text = Path(begun.value.path()).read_text()
    assert begun.value.suggested_filename == "news.acme.test.zone"
    assert "$ORIGIN acme.test.\n" in text and split in text
    page.get_by_role("link", name="news.acme.test", exact=True).click()
    expect(rows.first.locator(".name code")).to_have_text("_heliograph")


@pytest.mark.in_full
def test_domain_keys_are_rotated_and_brand_changed(site: Site, peer: DnsPeer) -> None:
    page = site.open("owner@acme.test", "--team", "team_acme", "--role", "owner", path=f"{ACME}/domains/dom_acme")
    page.get_by_role("button", name="Rotate keys").click()
    rows = page.locator("#record-list tbody tr:not(.fix)")
    expect(rows).to_have_count(8)
    publish_records(peer, site.service.get("/v1/domains/dom_acme").json["records"])
    page.get_by_role("button", name="Check now").click()
    expect(rows).to_have_count(6)
    expect(page.locator("#record-list .badge", has_text="Found")).to_have_count(6)
    page.get_by_label("Brand name").fill("Acme & Sons")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".flash")).to_contain_text("Acme & Sons is waiting for approval.")
    expect(page.locator(".notice", has_text="Acme & Sons is waiting for approval")).to_be_visible()
    assert page.get_by_role("button", name="Delete domain").count() == 0


@pytest.mark.in_full
def test_refused_sender_is_resubmitted_and_approved(site: Site, shoot: Shoot) -> None:
    page = site.open("names@acme.test", "--team", "team_acme", "--role", "developer", path=ACME)
    page.get_by_role("link", name="New display name").click()
    page.get_by_label("Name", exact=True).fill("Acme Billing")
    page.get_by_role("button", name="Submit for approval").click()
    expect(page.locator(".flash")).to_contain_text("is waiting for approval")
    page.get_by_role("link", name="New sender ID").click()
    page.get_by_label("Country").select_option(label="United Kingdom (GB)")
    page.get_by_label("Sender ID").fill("far too long a name")
    page.get_by_role("button", name="Submit for approval").click()
    expect(page.get_by_role("alert")).to_contain_text("at most 11")
    expect(page.get_by_label("Country")).to_have_value("GB")
    page.get_by_label("Sender ID").fill("ACME")
    page.get_by_role("button", name="Submit for approval").click()

    operator = site.open("names-op@acme.test", "--operator", path=ACME)
    for name in ("Acme Billing", "ACME"):
        row = operator.get_by_role("row").filter(has=operator.get_by_role("cell", name=name, exact=True))
        row.locator("summary").click()
        row.get_by_label(f"Reason to refuse {name}").fill("Show us <b>papers</b>.")
        row.get_by_role("button", name="Refuse").click()
        expect(row).to_contain_text("Show us <b>papers</b>.")
    shoot(operator, "senders-operator")

    page.goto(ACME)
    shoot(page, "senders-refused")
    for name in ("Acme Billing", "ACME"):
        row = page.get_by_role("row").filter(has=page.get_by_role("cell", name=name, exact=True))
        row.get_by_role("button", name="Request again").click()
        expect(row.locator(".badge.waiting")).to_be_visible()
        operator.goto(ACME)
        row = operator.get_by_role("row").filter(has=operator.get_by_role("cell", name=name, exact=True))
        row.get_by_role("button", name="Approve").click()
        expect(row.locator(".badge.approved")).to_be_visible()
    mail = {"from": "Acme Billing <a@acme.test>", "to": "b@example.com", "subject": "s", "text": "t"}
    assert site.service.post("/v1/emails", mail).status == 202


@pytest.mark.parametrize("address", ["Ada@Example.com", pytest.param("+447400123499", marks=pytest.mark.in_full)])
def test_sandbox_recipient_is_verified_with_code(site: Site, shoot: Shoot, address: str) -> None:
    name = "mail" if "@" in address else "phone"
    page = site.open(f"{name}@sandbox.test", "--team", "team_sandbox", "--role", "developer", path=SANDBOX)
    page.get_by_role("link", name="New recipient").click()
    page.get_by_label("Email address or phone").fill(address)
    page.get_by_role("button", name="Send code").click()
    code = page.locator(".copyable code").inner_text()
    page.get_by_label("Code").fill("AAAA-AAAA")
    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_role("alert")).to_have_text("This code is wrong or expired.")
    shoot(page, f"recipient-{name}")
    page.get_by_label("Code").fill(code.lower())
    page.get_by_role("button", name="Verify").click()
    row = page.get_by_role("row").filter(has_text=address.lower())
    expect(row.locator(".badge.verified")).to_be_visible()
    row.get_by_role("button", name="Delete").click()
    expect(page.locator(".flash")).to_contain_text("deleted")
    expect(row).to_have_count(0)


def test_sender_pages_depend_on_role(site: Site) -> None:
    viewer = site.open("viewer@acme.test", "--team", "team_acme", "--role", "viewer", path=ACME)
    expect(viewer.get_by_role("heading", name="Domains & senders")).to_be_visible()
    assert viewer.locator("main :is(button:not(.copyable button), a.button)").count() == 0
    developer = site.open("developer@acme.test", "--team", "team_acme", "--role", "developer", path=ACME)
    csrf = developer.locator("input[name=csrf]").first.input_value()
    form = {"csrf": csrf, "kind": "display_name", "id": "dn_pending", "approve": "yes", "brand": "Other"}
    for path, status in [("/decide", 403), ("/domains/dom_acme/brand", 403), ("/domains/dom_acme/remove", 403)]:
        assert developer.request.post(f"{site.url}{ACME}{path}", form=form).status == status, path
    for path in ("/domains/dom_poor", "/recipients?address=me@example.com"):
        assert developer.goto(f"{ACME}{path}").status == 404
    key = {"csrf": csrf, "kind": "key", "id": "any"}
    assert developer.request.post(f"{site.url}{ACME}/remove", form=key).status == 404
    assert viewer.goto(SANDBOX).status == 404


class FakeSmsProvider(BaseHTTPRequestHandler):
    """Fake SMS provider that records its requests."""

    taken: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.taken.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def plain_text(mail: bytes) -> str:
    body = message_from_bytes(mail, policy=policy.default).get_body(("plain",))
    assert body
    return str(body.get_content())


def test_codes_sent_by_real_carrier_are_not_shown(site: Site, tmp_path: Path) -> None:
    gateway = HTTPServer(("127.0.0.1", 0), FakeSmsProvider)
    threading.Thread(target=gateway.serve_forever, daemon=True).start()
    with Sink() as sink:
        carriers = carrier(1, "email", "smtp", "*", host="127.0.0.1", port=sink.port, tls="none")
        url = f"http://127.0.0.1:{gateway.server_port}/"
        carriers += carrier(1, "sms", "http", "*", url=url, body="{{text}}")
        (tmp_path / "carriers.toml").write_text(carriers)
        site.service.apply(tmp_path / "carriers.toml")
        page = site.open("real@sandbox.test", "--team", "team_sandbox", "--role", "developer", path=SANDBOX)
        for address in ("Real@example.com", "+447400123477"):
            page.goto(f"{SANDBOX}/recipients/new")
            page.get_by_label("Email address or phone").fill(address)
            page.get_by_role("button", name="Send code").click()
            expect(page.get_by_text("We sent a code to")).to_be_visible()
            text = plain_text(sink.mails[0][2]) if "@" in address else FakeSmsProvider.taken[0]
            code = re.search("[A-Z2-7]{4}-[A-Z2-7]{4}|[0-9]{6}", text)
            assert code and code[0] not in page.content()
            page.get_by_label("Code").fill(code[0])
            page.get_by_role("button", name="Verify").click()
            expect(page.get_by_role("row").filter(has_text=address.lower())).to_be_visible()
    gateway.shutdown()
    gateway.server_close()
    assert sink.mails[0][1] == ["real@example.com"]
    assert sink.mails[0][2].count(b"DKIM-Signature: ") == 2  # mail of the platform's sender is signed too
    assert site.service.get("/v1/emails", key="SANDBOX").json["data"] == []
