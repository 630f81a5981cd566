"""DNS records are shown only if the service has a public name; check results stay on the page."""

from typing import Any

import dns.zone
import pytest

from heliograph.dashboard.views.webhooks import is_local
from heliograph.domain.setup.domain_records import Verdict
from heliograph.domain.setup.records import Platform, TeamRecord, Webhook
from heliograph.domain.setup.snapshot import PLATFORM_ID
from heliograph.storage.domain_checks import DomainCheck, StoredVerdict
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.dashboard.inside import OPERATOR, Pages, write_records
from tests.storage.test_idempotency import make_context

pytestmark = pytest.mark.anyio
TEAM, HERE = "team_acme", "/dashboard/teams/team_acme"
PUBLIC = ("platform", PLATFORM_ID, Platform(mail_host="mail.heliograph.test"), None)
HOOK = Webhook(id="whk_1", team=TEAM, url="https://a.test/", secret="sealed")


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    await write_records(
        store, ("team", TEAM, TeamRecord(ref=1, id=TEAM, name="Acme"), TEAM), ("webhook", HOOK.id, HOOK, TEAM)
    )
    return Pages(make_context(store, clock))


async def add_domain(pages: Pages, name: str = "shop.acme.test") -> str:
    """Add a domain and return the path of its page."""
    response = await pages.post(f"{HERE}/senders/domains", {"domain": name})
    assert response.status == 303
    return response.headers["location"]


async def test_domain_page_without_public_host_shows_no_records(pages: Pages) -> None:
    here = await add_domain(pages)
    page = await pages.get(here)
    assert (
        "has no public host name yet" in page.text
        and "HELIOGRAPH_PUBLIC_URL" in page.text
        and "mail-host.invalid" in page.text
    )
    assert "_domainkey" not in page.html and "Zone file" not in page.text
    assert (await pages.get(f"{here}/zone")).status == 404
    assert "Save mail host" not in page.text
    assert "Save mail host" in (await pages.get(here, OPERATOR)).text


async def test_operator_sets_missing_mail_host_on_domain_page(pages: Pages) -> None:
    here = await add_domain(pages)
    path = "/dashboard/operator/platform/mail-host"
    assert (await pages.post(path, {"mail_host": "mail.acme.test"})).status == 403
    for wrong in ("", "localhost", "10.0.0.1", "not a host.test"):
        response = await pages.post(path, {"mail_host": wrong, "back": here}, OPERATOR)
        assert (response.status, response.headers["location"], pages.setup.platform.mail_host) == (303, here, "")
    for back in ("https://evil.test/", "//evil.test/dashboard/", "/dashboard/\r\nX-Evil: 1"):
        response = await pages.post(path, {"mail_host": "Mail.Acme.test.", "back": back}, OPERATOR)
        assert response.headers["location"] == "/dashboard/operator/platform/sender"
    assert "10 mail.acme.test" in (await pages.get(f"{here}/zone")).html
    assert "mail.acme.test" in (await pages.get(here)).text


async def test_last_dns_check_result_is_shown_with_time(store: Store, pages: Pages, clock: TestClock) -> None:
    await write_records(store, PUBLIC)
    here = await add_domain(pages)
    assert (await pages.get(here)).text.count("Not checked yet") == 1 + 7
    id_ = here.rpartition("/")[2]
    records = await pages.domains.required_records(id_)
    verdicts = [
        Verdict(ok=True, found=(records[0].value,)),
        Verdict(ok=False, found=("<b>other</b>",), fix=f"p= contains a different key. Set it to: {records[1].value}"),
        Verdict(ok=False, fix="There is no TXT record."),
        Verdict(ok=False, answered=False, fix="ns1.acme.test did not answer in time."),
    ]
    now = clock.now()
    stored = [StoredVerdict(record=r, verdict=v, at=now - 60_000) for r, v in zip(records, verdicts, strict=False)]
    await store.domain_checks.save(
        DomainCheck(
            domain=id_, checked_at=now - 60_000, since=now - 120_000, next_at=now - 45_000, records=tuple(stored)
        )
    )
    page = await pages.get(here)
    assert "1 of 6 required records are correct" in page.text and "Checks every 15 seconds" in page.text
    assert "We check every 15 seconds. You can leave this page." in page.text
    assert "1 min ago" in page.text
    assert [page.text.count(f" {word} ") for word in ("Missing", "Incorrect", "Lookup failed")] == [1, 1, 1]
    assert "Set it to the value above." in page.text and "<b>other" not in page.html
    assert "ns1.acme.test did not answer" in page.text and "There is no TXT record" not in page.text

    await store.domain_checks.save(DomainCheck(domain=id_, checked_at=now, records=tuple(stored)))
    assert "We check every 6 hours; choose Check now to check at once." in (await pages.get(here)).text


@pytest.mark.parametrize(
    "mend",
    [
        "TXT a.test could not be looked up: the resolver knows no zone for it.",
        "ns1.acme.test did not answer in time.",
    ],
)
async def test_unresponsive_dns_is_reported_once(store: Store, pages: Pages, clock: TestClock, mend: str) -> None:
    await write_records(store, PUBLIC)
    here = await add_domain(pages)
    id_, now = here.rpartition("/")[2], clock.now()
    silent = Verdict(ok=False, answered=False, fix=mend)
    stored = tuple(StoredVerdict(record=r, verdict=silent, at=now) for r in await pages.domains.required_records(id_))
    await store.domain_checks.save(DomainCheck(domain=id_, checked_at=now, since=now, next_at=now, records=stored))
    page = await pages.get(here)
    assert "Add these 7 records at your DNS provider" in page.text and f"The last lookup failed: {mend}" in page.text
    assert page.text.count(mend) == 1 and page.text.count("Lookup failed") == 7


async def test_zone_file_uses_selected_zone(store: Store, pages: Pages) -> None:
    await write_records(store, PUBLIC)
    here = await add_domain(pages)
    for zone_param, origin in (("", "acme.test."), ("shop.acme.test", "shop.acme.test."), ("evil.test", "acme.test.")):
        file = await pages.get(f"{here}/zone?zone={zone_param}")
        assert file.headers["content-disposition"] == "attachment; filename=shop.acme.test.zone"
        read = dns.zone.from_text(file.html, check_origin=False, relativize=False)
        assert read.origin and read.origin.to_text() == origin
        assert len(list(read.iterate_rdatas())) == 7


async def test_viewer_cannot_change_domain_or_webhook(pages: Pages) -> None:
    here = await add_domain(pages)
    assert (await pages.get(f"{HERE}/senders/domains/new", "viewer")).status == 403
    assert (await pages.get(f"{HERE}/webhooks/new", "viewer")).status == 403
    assert (await pages.post(f"{here}/check", who="viewer")).status == 403
    assert (await pages.get(here, "viewer")).status == 200


# -- webhooks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ticked", "events"),
    [
        (["all", "sms.*"], ("*",)),
        (["email.*", "email.sent", "sms.failed"], ("email.*", "sms.failed")),
        (["credit.low", "domain.failed"], ("domain.failed", "credit.low")),
    ],
)
async def test_webhook_event_checkboxes_match_stored_events(
    pages: Pages, ticked: list[str], events: tuple[str, ...]
) -> None:
    form = {"url": HOOK.url} | dict.fromkeys(ticked, "yes")
    assert (await pages.post(f"{HERE}/webhooks/{HOOK.id}", form)).status == 303
    assert pages.setup.teams[TEAM].webhooks[0].events == events
    html = (await pages.get(f"{HERE}/webhooks/{HOOK.id}/edit")).html
    checked = [name for name in ("all", *events) if f'name="{name}" value="yes" checked' in html]
    assert checked == (["all"] if events == ("*",) else list(events))


async def test_webhook_without_events_is_refused(pages: Pages) -> None:
    response = await pages.post(f"{HERE}/webhooks", {"url": "https://a.test/", "nonsense": "yes"})
    assert response.status == 400 and "Choose at least one event." in response.text


async def test_webhook_to_local_url_shows_listen_command(pages: Pages) -> None:
    url = "http://localhost:3000/hook?a=1&b=$(x)"
    response = await pages.post(f"{HERE}/webhooks", {"url": url, "all": "yes"})
    assert response.status == 400
    assert "heliograph listen --forward http://localhost:3000/hook --key @key.txt --url " in (
        (await pages.post(f"{HERE}/webhooks", {"url": "http://localhost:3000/hook", "all": "yes"})).text
    )
    assert "--forward 'http://localhost:3000/hook?a=1&b=$(x)'" in response.text


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:3000/", True),
        ("http://app.localhost/", True),
        ("http://127.0.0.1/", True),
        ("http://192.168.1.7/", True),
        ("http://[::1]/", True),
        ("https://example.com/", False),
        ("https://1.1.1.1/", False),
        ("no url", False),
    ],
)
def test_is_local_detects_loopback_urls(url: str, local: bool) -> None:
    assert is_local(url) is local


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("the endpoint answered 410 Gone", "It was turned off automatically: the endpoint answered 410 Gone"),
        ("", "A member"),
    ],
)
async def test_disabled_webhook_shows_reason_and_turn_on(store: Store, pages: Pages, reason: str, said: str) -> None:
    off = Webhook(id=HOOK.id, team=TEAM, url=HOOK.url, secret="s", enabled=False, disabled_reason=reason)
    await write_records(store, ("webhook", HOOK.id, off, TEAM))
    page = await pages.get(f"{HERE}/webhooks/{HOOK.id}")
    assert said in page.text and "Turn on" in page.text and "kept for 30 days" in page.text
