"""A new user's path, with nothing but a browser: from an empty folder to a live send, and why it bounced."""

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
from tests.dashboard.conftest import PHONE, Shoot, Tabs, fits, printed_link, sync_api
from tests.journeys.smtp_sink import Sink
from tests.people import PASSWORD

expect = sync_api.expect
DOMAIN, GONE = "shop.acme.test", "gone@example.com"


class Relay(Sink):
    """Takes every mail but that for somebody who has left."""

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if address == GONE:
            return "550 5.1.1 no such user here"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 fine"


@contextmanager
def name_server() -> Iterator[DnsPeer]:
    """In a thread of its own: the browser's calls hold the test's."""
    made, loop = DnsPeer(Zone()), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(made.__aenter__(), loop).result(5)
    try:
        yield made
    finally:
        asyncio.run_coroutine_threadsafe(made.__aexit__(None, None, None), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def page(tabs: Tabs, port: int) -> Iterator[Any]:
    """A phone's: the tests of each page are on a desk."""
    yield tabs.take(base_url=f"http://127.0.0.1:{port}", viewport=PHONE)
    tabs.give_back()


def said(page: Any, text: str) -> None:
    expect(page.locator("main")).to_contain_text(re.compile(text, re.I))


def button(page: Any, name: str) -> Any:
    return page.locator("main").get_by_role("button", name=re.compile(name, re.I)).first


def link(page: Any, name: str) -> Any:
    return page.locator("main").get_by_role("link", name=re.compile(name, re.I)).first


@pytest.mark.in_full
def test_from_an_empty_folder_to_a_bounce_explained(page: Any, shoot: Shoot, tmp_path: Path) -> None:
    with name_server() as peer, Relay() as relay, printed_link(tmp_path, HELIOGRAPH_RESOLVER=peer.at) as first:
        start = first.partition("/dashboard")[0]
        sign_up(page, first)
        team = page.url.partition("?")[0].rstrip("/")
        add_carrier(page, f"{start}/dashboard/operator/carriers", relay)
        fits(page, shoot, "path-carrier")
        add_domain(page, start, team, peer)
        fits(page, shoot, "path-domain")
        add_template(page, team)
        fits(page, shoot, "path-template")
        go_live(page, team)
        token = make_key(page, team)
        fits(page, shoot, "path-key")

        page.goto(f"{team}/templates")
        link(page, "Order").click()
        template = page.url.rpartition("/templates/")[2].partition("/")[0].partition("?")[0]
        taken, refused = (send(page, start, token, to, template) for to in ("ada@example.com", GONE))

        page.goto(f"{team}/messages/{taken}")
        expect(page.locator("main .badge.sent").first).to_be_visible()
        assert [mail[1] for mail in relay.mails][-1] == ["ada@example.com"]
        page.goto(f"{team}/messages/{refused}")
        expect(page.locator("main .badge.bounced").first).to_be_visible()
        said(page, "no such user here")  # the other side's words
        said(page, "suppress")  # and what it means
        fits(page, shoot, "path-bounce")
        page.goto(f"{team}/suppressions")
        said(page, GONE)
        fits(page, shoot, "path-suppressed")


def sign_up(page: Any, first: str) -> None:
    page.goto(first)
    page.get_by_label("Email address").fill("ada@acme.test")
    page.get_by_label("Your name").fill("Ada")
    page.get_by_label("New password").fill(PASSWORD)
    button(page, "Continue").click()
    page.get_by_label("Name of the team").fill("Acme")
    button(page, "Create team").click()
    page.wait_for_url("**/dashboard/teams/team_*")


def add_carrier(page: Any, carriers: str, relay: Relay) -> None:
    """From the notice that all is simulated: it is on every page of the team."""
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
    said(page, "2.0.0 taken")


def add_domain(page: Any, start: str, team: str, peer: DnsPeer) -> None:
    page.goto(f"{team}/senders")
    link(page, "New domain|Add domain").click()
    page.get_by_label("Domain", exact=True).fill(DOMAIN)
    button(page, "Continue").click()
    page.get_by_label("Mail host").fill("mail.acme.test")  # this service runs on loopback
    button(page, "Save").click()
    place = link(page, "Zone file").get_attribute("href")
    zone = page.request.get(f"{start}{place}")
    for name, _, data in dns.zone.from_text(zone.text(), check_origin=False, relativize=False).iterate_rdatas():
        kind = dns.rdatatype.to_text(data.rdtype)
        peer.zone.setdefault((name.to_text(omit_final_dot=True), kind), []).append(data.to_text())
    button(page, "Check now").click()
    button(page, "Approve").click()
    said(page, "Ready to send")


def add_template(page: Any, team: str) -> None:
    """Saved as a draft, then published."""
    page.goto(f"{team}/templates/new?channel=email")
    page.get_by_label("Name", exact=True).fill("Order")
    page.get_by_label("Subject").fill("Your order")
    page.get_by_label("Plain text").fill("It is on its way.")
    button(page, "^Save draft").click()
    page.wait_for_url(re.compile("/templates/tpl_"))
    button(page, "^Publish").click()
    said(page, "published|live")


def go_live(page: Any, team: str) -> None:
    page.goto(f"{team}/settings")
    button(page, "Go live").click()
    said(page, "live")


def make_key(page: Any, team: str) -> str:
    page.goto(f"{team}/keys/new")
    page.get_by_label("Name", exact=True).fill("server")
    button(page, "Create key").click()
    return str(page.locator("main code", has_text=re.compile("^hk_")).first.inner_text())


def send(page: Any, start: str, token: str, to: str, template: str) -> str:
    body = {"from": f"hello@{DOMAIN}", "to": to, "template_id": template}
    answer = page.request.post(f"{start}/v1/emails", data=body, headers={"Authorization": f"Bearer {token}"})
    assert answer.status == 202, answer.text()
    return str(answer.json()["id"])
