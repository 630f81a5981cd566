"""Journey of a new user in a browser: from an empty folder to a live send and an explained bounce."""

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dns.zone
import pytest

from tests.carriers.dns_peer import DnsPeer, Zone
from tests.dashboard.conftest import PHONE, Shoot, TabPool, assert_fits, printed_link, sync_api
from tests.journeys.smtp_sink import Sink
from tests.people import PASSWORD

expect = sync_api.expect
DOMAIN, GONE = "shop.acme.test", "gone@example.com"


class FakeRelay(Sink):
    """Fake relay that rejects one recipient as unknown and accepts all others."""

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if address == GONE:
            return "550 5.1.1 no such user here"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 fine"


@contextmanager
def run_name_server() -> Iterator[DnsPeer]:
    """Run a DNS server in a thread, because browser calls block the test's thread."""
    peer, loop = DnsPeer(Zone()), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(peer.__aenter__(), loop).result(5)
    try:
        yield peer
    finally:
        asyncio.run_coroutine_threadsafe(peer.__aexit__(None, None, None), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def page(tabs: TabPool, port: int) -> Iterator[Any]:
    """A page at phone width; the tests of single pages use desktop width."""
    yield tabs.acquire(base_url=f"http://127.0.0.1:{port}", viewport=PHONE)
    tabs.release()


def expect_text(page: Any, text: str) -> None:
    expect(page.locator("main")).to_contain_text(re.compile(text, re.I))


def button(page: Any, name: str) -> Any:
    return page.locator("main").get_by_role("button", name=re.compile(name, re.I)).first


def link(page: Any, name: str) -> Any:
    return page.locator("main").get_by_role("link", name=re.compile(name, re.I)).first


@pytest.mark.in_full
def test_new_user_goes_from_empty_folder_to_explained_bounce(page: Any, shoot: Shoot, tmp_path: Path) -> None:
    with (
        run_name_server() as peer,
        FakeRelay() as relay,
        printed_link(tmp_path, HELIOGRAPH_RESOLVER=peer.address) as first,
    ):
        start = first.partition("/dashboard")[0]
        sign_up(page, first)
        team = page.url.partition("?")[0].rstrip("/")
        add_carrier(page, f"{start}/dashboard/operator/carriers", relay)
        assert_fits(page, shoot, "path-carrier")
        add_domain(page, start, team, peer)
        assert_fits(page, shoot, "path-domain")
        add_template(page, team)
        assert_fits(page, shoot, "path-template")
        go_live(page, team)
        token = make_key(page, team)
        assert_fits(page, shoot, "path-key")

        page.goto(f"{team}/templates")
        link(page, "Order").click()
        template = page.url.rpartition("/templates/")[2].partition("/")[0].partition("?")[0]
        taken, refused = (send(page, start, token, to, template) for to in ("ada@example.com", GONE))

        page.goto(f"{team}/messages/{taken}")
        expect(page.locator("main .badge.sent").first).to_be_visible()
        assert [mail[1] for mail in relay.mails][-1] == ["ada@example.com"]
        page.goto(f"{team}/messages/{refused}")
        expect(page.locator("main .badge.bounced").first).to_be_visible()
        expect_text(page, "no such user here")  # the peer's reply
        expect_text(page, "suppress")  # and its explanation
        assert_fits(page, shoot, "path-bounce")
        page.goto(f"{team}/suppressions")
        expect_text(page, GONE)
        assert_fits(page, shoot, "path-suppressed")


def sign_up(page: Any, first: str) -> None:
    page.goto(first)
    page.get_by_label("Email address").fill("ada@acme.test")
    page.get_by_label("Your name").fill("Ada")
    page.get_by_label("New password").fill(PASSWORD)
    button(page, "Create account").click()
    page.get_by_label("Team name").fill("Acme")
    button(page, "Create team").click()
    page.wait_for_url("**/dashboard/teams/team_*")


def add_carrier(page: Any, carriers: str, relay: FakeRelay) -> None:
    """Start from the alert about simulated channels, which is on every page of the team."""
    page.locator("main").get_by_role("link", name=re.compile("carrier", re.I)).first.click()
    page.wait_for_url(f"{carriers}**")
    if not page.url.rstrip("/").endswith("/new"):
        link(page, "Add carrier").click()
    link(page, "SMTP relay").click()
    page.get_by_label("Host").fill("127.0.0.1")
    page.get_by_label(re.compile("^Port")).fill(str(relay.port))
    page.get_by_label("Encryption").select_option("none")
    page.get_by_label("Send a test message to").fill("ada@acme.test")
    button(page, "Test and add").click()
    expect_text(page, "2.0.0 taken")


def add_domain(page: Any, start: str, team: str, peer: DnsPeer) -> None:
    page.goto(f"{team}/senders")
    link(page, "New domain|Add domain").click()
    page.get_by_label("Domain", exact=True).fill(DOMAIN)
    button(page, "Continue").click()
    page.get_by_label("Mail host").fill("mail.acme.test")  # this service runs on loopback
    button(page, "Save").click()
    zone_path = link(page, "Zone file").get_attribute("href")
    zone = page.request.get(f"{start}{zone_path}")
    for name, _, data in dns.zone.from_text(zone.text(), check_origin=False, relativize=False).iterate_rdatas():
        kind = dns.rdatatype.to_text(data.rdtype)
        peer.zone.setdefault((name.to_text(omit_final_dot=True), kind), []).append(data.to_text())
    button(page, "Check now").click()
    button(page, "Approve").click()
    expect_text(page, "Ready to send")


def add_template(page: Any, team: str) -> None:
    """Save a template as a draft, then publish it."""
    page.goto(f"{team}/templates/new?channel=email")
    page.get_by_label("Name", exact=True).fill("Order")
    page.get_by_label("Subject").fill("Your order")
    page.get_by_label("Plain text").fill("It is on its way.")
    button(page, "^Save draft").click()
    page.wait_for_url(re.compile("/templates/tpl_"))
    button(page, "^Publish").click()
    expect_text(page, "published|live")


def go_live(page: Any, team: str) -> None:
    page.goto(f"{team}/settings")
    button(page, "Go live").click()
    expect_text(page, "live")


def make_key(page: Any, team: str) -> str:
    page.goto(f"{team}/keys/new")
    page.get_by_label("Name", exact=True).fill("server")
    button(page, "Create key").click()
    return str(page.locator("main code", has_text=re.compile("^hk_")).first.inner_text())


def send(page: Any, start: str, token: str, to: str, template: str) -> str:
    body = {"from": f"hello@{DOMAIN}", "to": to, "template_id": template}
    response = page.request.post(f"{start}/v1/emails", data=body, headers={"Authorization": f"Bearer {token}"})
    assert response.status == 202, response.text()
    return str(response.json()["id"])
