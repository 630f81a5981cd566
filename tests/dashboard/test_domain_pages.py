"""Records are handed out only where there is a name to write into them; what was found stays on the page."""

from typing import Any

import dns.zone
import pytest

from heliograph.dashboard.views.webhooks import is_local
from heliograph.domain.setup.domain_records import Verdict
from heliograph.domain.setup.records import Platform, TeamRecord, Webhook
from heliograph.domain.setup.snapshot import PLATFORM_ID
from heliograph.storage.domain_checks import DomainCheck, KeptVerdict
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.dashboard.inside import OPERATOR, Pages, set_up
from tests.storage.test_idempotency import make_context

pytestmark = pytest.mark.anyio
TEAM, HERE = "team_acme", "/dashboard/teams/team_acme"
PUBLIC = ("platform", PLATFORM_ID, Platform(mail_host="mail.heliograph.test"), None)
HOOK = Webhook(id="whk_1", team=TEAM, url="https://a.test/", secret="sealed")


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    await set_up(store, ("team", TEAM, TeamRecord(ref=1, id=TEAM, name="Acme"), TEAM), ("webhook", HOOK.id, HOOK, TEAM))
    return Pages(make_context(store, clock))


async def added(pages: Pages, name: str = "shop.acme.test") -> str:
    """The page of a new domain."""
    made = await pages.post(f"{HERE}/senders/domains", {"domain": name})
    assert made.status == 303
    return made.headers["location"]


async def test_without_a_public_name_there_are_no_records(pages: Pages) -> None:
    here = await added(pages)
    page = await pages.get(here)
    assert (
        "has no public name yet" in page.text
        and "HELIOGRAPH_PUBLIC_URL" in page.text
        and "mail-host.invalid" in page.text
    )
    assert "_domainkey" not in page.html and "Zone file" not in page.text
    assert (await pages.get(f"{here}/zone")).status == 404
    assert "Save the mail host" not in page.text
    assert "Save the mail host" in (await pages.get(here, OPERATOR)).text


async def test_an_operator_names_the_host_where_it_is_missed(pages: Pages) -> None:
    here = await added(pages)
    place = "/dashboard/operator/platform/mail-host"
    assert (await pages.post(place, {"mail_host": "mail.acme.test"})).status == 403
    for wrong in ("", "localhost", "10.0.0.1", "not a host.test"):
        said = await pages.post(place, {"mail_host": wrong, "back": here}, OPERATOR)
        assert (said.status, said.headers["location"], pages.setup.platform.mail_host) == (303, here, "")
    for back in ("https://evil.test/", "//evil.test/dashboard/", "/dashboard/\r\nX-Evil: 1"):
        said = await pages.post(place, {"mail_host": "Mail.Acme.test.", "back": back}, OPERATOR)
        assert said.headers["location"] == "/dashboard/operator/platform/sender"
    assert "10 mail.acme.test" in (await pages.get(f"{here}/zone")).html
    assert "mail.acme.test" in (await pages.get(here)).text


async def test_what_was_found_stays_with_its_time(store: Store, pages: Pages, clock: TestClock) -> None:
    await set_up(store, PUBLIC)
    here = await added(pages)
    assert (await pages.get(here)).text.count("Not checked yet") == 1 + 6
    id_ = here.rpartition("/")[2]
    records = await pages.domains.records(id_)
    said = [
        Verdict(ok=True, found=(records[0].value,)),
        Verdict(ok=False, found=("<b>other</b>",), fix=f"p= holds another key. Set it to: {records[1].value}"),
        Verdict(ok=False, fix="There is no TXT record."),
        Verdict(ok=False, answered=False, fix="ns1.acme.test did not answer in time."),
    ]
    now = clock.now()
    kept = [KeptVerdict(record=r, verdict=v, at=now - 60_000) for r, v in zip(records, said, strict=False)]
    await store.domain_checks.keep(
        DomainCheck(domain=id_, checked_at=now - 60_000, since=now - 120_000, next_at=now - 45_000, records=tuple(kept))
    )
    page = await pages.get(here)
    assert "1 of 6 records are right" in page.text and "Looks again every 15 seconds" in page.text
    assert "1 min ago" in page.text
    assert [page.text.count(f" {word} ") for word in ("Missing", "Not right", "No answer")] == [1, 1, 1]
    assert "Set it to the value above." in page.text and "<b>other" not in page.html
    assert "ns1.acme.test did not answer" in page.text and "There is no TXT record" not in page.text


@pytest.mark.parametrize(
    "mend",
    [
        "TXT a.test could not be looked up: the resolver knows no zone for it.",
        "ns1.acme.test did not answer in time.",
    ],
)
async def test_a_dns_that_is_silent_is_told_once(store: Store, pages: Pages, clock: TestClock, mend: str) -> None:
    await set_up(store, PUBLIC)
    here = await added(pages)
    id_, now = here.rpartition("/")[2], clock.now()
    silent = Verdict(ok=False, answered=False, fix=mend)
    kept = tuple(KeptVerdict(record=r, verdict=silent, at=now) for r in await pages.domains.records(id_))
    await store.domain_checks.keep(DomainCheck(domain=id_, checked_at=now, since=now, next_at=now, records=kept))
    page = await pages.get(here)
    assert f"The records could not be looked up Nothing is known of them: {mend}" in page.text
    assert page.text.count(mend) == 1 and "is there yet" not in page.text


async def test_the_zone_file_is_of_the_zone_that_is_chosen(store: Store, pages: Pages) -> None:
    await set_up(store, PUBLIC)
    here = await added(pages)
    for wanted, origin in (("", "acme.test."), ("shop.acme.test", "shop.acme.test."), ("evil.test", "acme.test.")):
        file = await pages.get(f"{here}/zone?zone={wanted}")
        assert file.headers["content-disposition"] == "attachment; filename=shop.acme.test.zone"
        read = dns.zone.from_text(file.html, check_origin=False, relativize=False)
        assert read.origin and read.origin.to_text() == origin
        assert len(list(read.iterate_rdatas())) == 6


async def test_those_who_only_look_change_nothing(pages: Pages) -> None:
    here = await added(pages)
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
async def test_boxes_become_events_and_back(pages: Pages, ticked: list[str], events: tuple[str, ...]) -> None:
    form = {"url": HOOK.url} | dict.fromkeys(ticked, "yes")
    assert (await pages.post(f"{HERE}/webhooks/{HOOK.id}", form)).status == 303
    assert pages.setup.teams[TEAM].webhooks[0].events == events
    html = (await pages.get(f"{HERE}/webhooks/{HOOK.id}/edit")).html
    checked = [name for name in ("all", *events) if f'name="{name}" value="yes" checked' in html]
    assert checked == (["all"] if events == ("*",) else list(events))


async def test_no_box_is_refused(pages: Pages) -> None:
    said = await pages.post(f"{HERE}/webhooks", {"url": "https://a.test/", "nonsense": "yes"})
    assert said.status == 400 and "Choose one event or more." in said.text


async def test_a_local_address_shows_how_to_listen(pages: Pages) -> None:
    url = "http://localhost:3000/hook?a=1&b=$(x)"
    said = await pages.post(f"{HERE}/webhooks", {"url": url, "all": "yes"})
    assert said.status == 400
    assert "heliograph listen --forward http://localhost:3000/hook --key @key.txt --url " in (
        (await pages.post(f"{HERE}/webhooks", {"url": "http://localhost:3000/hook", "all": "yes"})).text
    )
    assert "--forward 'http://localhost:3000/hook?a=1&b=$(x)'" in said.text


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
def test_whose_machine_it_is(url: str, local: bool) -> None:
    assert is_local(url) is local


@pytest.mark.parametrize(
    ("reason", "said"),
    [("the endpoint answered 410 Gone", "The service turned it off: the endpoint answered 410 Gone"), ("", "Somebody")],
)
async def test_a_webhook_that_is_off_says_why_and_how_to_turn_it_on(
    store: Store, pages: Pages, reason: str, said: str
) -> None:
    off = Webhook(id=HOOK.id, team=TEAM, url=HOOK.url, secret="s", enabled=False, disabled_reason=reason)
    await set_up(store, ("webhook", HOOK.id, off, TEAM))
    page = await pages.get(f"{HERE}/webhooks/{HOOK.id}")
    assert said in page.text and "Turn on" in page.text and "kept for 30 days" in page.text
