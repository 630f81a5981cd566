"""Sending domains: owner of a name, maximum per team, the platform's own sender, and audit entries."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.app import signing_keys
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.mail import dkim
from heliograph.domain.refusals import BrandDomainNotFound, InvalidRequest, TeamNotFound
from heliograph.domain.setup.domain_records import Record, Verdict
from heliograph.domain.setup.records import Platform, TeamRecord
from heliograph.domain.setup.snapshot import PLATFORM_ID, PLATFORM_TEAM, to_row
from heliograph.encryption import Cipher
from heliograph.manage.domains import RECHECK_MS, Domains
from heliograph.storage.setup import NewTeam
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.manage.conftest import ADA, list_entries
from tests.setup_helpers import set_up

pytestmark = pytest.mark.anyio

SEALER = Cipher(bytes(32))
PLATFORM = "sandbox.heliograph.test"
TEAMS = [TeamRecord(ref=number, id=id_, name=id_, domains_max=3) for number, id_ in enumerate(("team_a", "team_b"), 1)]


class FakeDns:
    """Answers with the records of published domains."""

    def __init__(self) -> None:
        self.published: set[str] = set()

    async def ask(self, records: Sequence[Record]) -> list[tuple[Record, Verdict]]:
        result = any(record.value in self.published for record in records if record.purpose == "ownership")
        return [(record, Verdict(ok=result, fix="" if result else "Set it.")) for record in records]


@pytest.fixture
def dns() -> FakeDns:
    return FakeDns()


@pytest.fixture
async def domains(store: Store, clock: TestClock, dns: FakeDns) -> Domains:
    rows, accounts = [to_row("team", team.id, team, team.id) for team in TEAMS], [NewTeam(1, 0), NewTeam(2, 0)]
    await set_up(store, rows=rows, new_teams=accounts)
    private = dkim.generate_key("ed25519-sha256")
    return Domains(
        store,
        clock,
        encrypt=SEALER.encrypt,
        make_key=lambda _: (private, "v=DKIM1"),
        check_records=dns.ask,
        ownership_key=bytes(32),
        mail_host="mail.test",
    )


async def publish(domains: Domains, dns: FakeDns, id_: str) -> None:
    dns.published |= {record.value for record in await domains.required_records(id_) if record.purpose == "ownership"}


def signers(store: Store, name: str) -> set[str]:
    return {key.selector for key in signing_keys(store, SEALER)(name)}


async def test_domain_belongs_to_the_team_that_verifies_it(store: Store, domains: Domains, dns: FakeDns) -> None:
    squatter, owner = [await domains.add(ADA, team.id, "shop.test", team.name) for team in TEAMS]
    await domains.required_records(squatter.id)  # so it has keys, too
    await publish(domains, dns, owner.id)
    assert not (await domains.check(ADA, squatter.id)).domain.verified
    assert (await domains.check(ADA, owner.id)).domain.verified
    assert domains.get("shop.test").id == owner.id
    assert signers(store, "shop.test") == {key.selector for key in store.setup.current.teams["team_b"].dkim_keys}


async def test_domain_cannot_be_verified_by_two_teams(domains: Domains, dns: FakeDns) -> None:
    first, second = [await domains.add(ADA, team.id, "shop.test", team.name) for team in TEAMS]
    for domain in (first, second):
        await publish(domains, dns, domain.id)
        checked = await domains.check(ADA, domain.id)
    assert (domains.get(first.id).verified, domains.get(second.id).verified) == (True, False)
    errors = {record.purpose: verdict.fix for record, verdict in checked.records if not verdict.ok}
    assert errors.keys() == {"ownership"}
    assert errors["ownership"].startswith("Another team has already verified this domain.")


async def test_domain_verified_by_another_team_is_refused(domains: Domains, dns: FakeDns) -> None:
    owner = await domains.add(ADA, "team_a", "shop.test", "A")
    await publish(domains, dns, owner.id)
    await domains.check(ADA, owner.id)
    assert await domains.add(ADA, "team_a", "shop.test", "A") == domains.get(owner.id)
    with pytest.raises(InvalidRequest, match=r"shop\.test is already verified by another team"):
        await domains.add(ADA, "team_b", "shop.test", "B")


async def test_team_cannot_add_more_domains_than_its_limit(domains: Domains) -> None:
    names = [f"{number}.shop.test" for number in range(3)]
    for name in names * 2:  # adding an existing domain again does not count
        await domains.add(ADA, "team_a", name, "A")
    with pytest.raises(InvalidRequest, match="has 3 domains, the maximum"):
        await domains.add(ADA, "team_a", "more.shop.test", "A")
    await domains.add(ADA, "team_b", "more.shop.test", "B")


async def test_platform_sender_domain_has_its_own_records_and_keys(
    store: Store, domains: Domains, dns: FakeDns
) -> None:
    squatter = await domains.add(ADA, "team_a", PLATFORM, "A")
    await domains.required_records(squatter.id)
    assert [record.purpose for record in await domains.required_records(PLATFORM)].count("dkim") == 2
    own = domains.get(PLATFORM)
    assert (own.team, own.approved, own.verified) == (PLATFORM_TEAM, True, False)
    assert signers(store, PLATFORM) == {key.selector for key in store.setup.current.platform_keys} != set()
    assert domains.get(PLATFORM).id == own.id
    await domains.rotate(ADA, PLATFORM)
    await publish(domains, dns, own.id)
    await domains.check_due()
    assert domains.get(PLATFORM).verified
    assert sorted(key.state for key in store.setup.current.platform_keys) == ["active", "active", "retired", "retired"]


async def test_a_sender_on_a_teams_own_domain_is_signed_with_its_keys(
    store: Store, domains: Domains, dns: FakeDns
) -> None:
    owner = await domains.add(ADA, "team_a", "shop.test", "A")
    await publish(domains, dns, owner.id)
    await domains.check(ADA, owner.id)
    moved = to_row("platform", PLATFORM_ID, Platform(sender="hello@shop.test"), None)
    await set_up(store, rows=[moved])
    await domains.ensure_keys("shop.test")
    assert domains.get("shop.test").id == owner.id
    assert store.setup.current.platform_domains == {}


async def test_unknown_domain_has_keys_but_no_record(domains: Domains) -> None:
    await domains.ensure_keys("nobody.test")
    with pytest.raises(BrandDomainNotFound):
        domains.get("nobody.test")


async def test_domain_change_writes_one_audit_entry(
    store: Store, domains: Domains, dns: FakeDns, clock: TestClock
) -> None:
    shop = await domains.add(ADA, "team_a", "Shop.test")
    await domains.add(ADA, "team_a", "shop.test")  # the team has this domain already
    await domains.check(ADA, shop.id)  # nothing is found: no change
    await publish(domains, dns, shop.id)
    await domains.check(ADA, shop.id)
    for _ in range(2):  # the second finds them waiting
        await domains.rotate(COMMAND_LINE, shop.id)
    clock.forward(RECHECK_MS)
    await domains.check_due()
    for _ in range(2):
        await domains.set_brand(COMMAND_LINE, shop, "Shop", by_operator=True)
    dns.published.clear()
    for _ in range(3):
        clock.forward(RECHECK_MS)
        await domains.check_due()
    await domains.remove(ADA, shop)
    assert await list_entries(store, "team_a") == [
        ("usr_ada", "domain.remove", "shop.test", ""),
        ("service", "domain.failed", "shop.test", ""),
        ("command line", "domain.brand", "shop.test", "team_a → Shop"),
        ("service", "domain.keys", "shop.test", "the new keys sign"),
        ("command line", "domain.rotate", "shop.test", ""),
        ("usr_ada", "domain.verified", "shop.test", ""),
        ("usr_ada", "domain.add", "shop.test", ""),
    ]
    assert store.setup.current.teams["team_a"].domains == {}


async def test_keys_are_made_once_however_many_mails_need_them(
    domains: Domains, monkeypatch: pytest.MonkeyPatch
) -> None:
    created, make = list[str](), domains._make_key

    def noted(algorithm: Any) -> tuple[bytes, str]:
        created.append(algorithm)
        return make(algorithm)

    monkeypatch.setattr(domains, "_make_key", noted)
    await asyncio.gather(*(domains.ensure_keys(PLATFORM) for _ in range(20)))
    assert len(created) == len(set(created)) == 2


async def test_keys_generated_on_first_use_are_logged_with_the_service_as_actor(store: Store, domains: Domains) -> None:
    await domains.ensure_keys(PLATFORM)
    await domains.ensure_keys(PLATFORM)
    assert await list_entries(store) == [
        ("service", "domain.keys", PLATFORM, "created"),
        ("service", "domain.add", PLATFORM, ""),
    ]


async def test_a_check_that_changes_nothing_notes_its_time(store: Store, domains: Domains, clock: TestClock) -> None:
    shop = await domains.add(COMMAND_LINE, "team_a", "shop.test")
    before = await list_entries(store)
    checked = (await domains.check(ADA, shop.id)).domain
    assert (checked.failures, checked.verified) == (1, False)
    assert checked.checked_at and clock.now() - RECHECK_MS < checked.checked_at <= clock.now()
    assert await list_entries(store) == before


async def test_domain_that_can_send_is_not_removed(store: Store, domains: Domains) -> None:
    shop = await domains.add(ADA, "team_a", "shop.test")
    usable = replace(shop, verified=True, approved=True)
    await set_up(store, rows=[to_row("domain", shop.id, usable, "team_a")])
    with pytest.raises(InvalidRequest, match="This domain can send"):
        await domains.remove(ADA, shop)


async def test_the_command_line_adds_more_than_the_team_may(domains: Domains) -> None:
    for number in range(4):
        await domains.add(COMMAND_LINE, "team_a", f"{number}.shop.test")
    with pytest.raises(TeamNotFound, match="There is no team team_c"):
        await domains.add(COMMAND_LINE, "team_c", "shop.test")


async def test_domain_check_result_is_stored_with_its_time(
    store: Store, domains: Domains, dns: FakeDns, clock: TestClock
) -> None:
    shop = await domains.add(ADA, "team_a", "mail.shop.test")
    new = await domains.status(shop.id)
    assert (new.correct_count, new.checked_at, new.is_checked_often, new.zone) == (0, None, True, "shop.test")
    assert {stored for _, stored in new.records} == {None}
    assert new.next_check_at and new.next_check_at <= clock.now()
    await domains.check(ADA, shop.id)
    errors = await domains.status(shop.id)
    assert {stored.verdict.fix for _, stored in errors.records if stored} == {"Set it."}
    assert {stored.at for _, stored in errors.records if stored} == {errors.checked_at}
    assert errors.next_check_at == (errors.checked_at or 0) + 5_000
    await publish(domains, dns, shop.id)
    await domains.check(ADA, shop.id)
    right = await domains.status(shop.id)
    assert (right.correct_count, right.is_checked_often) == (6, False)
    assert right.next_check_at == (right.checked_at or 0) + RECHECK_MS
    assert right.alignment and right.alignment.passes
    await domains.remove(ADA, shop)
    assert await store.domain_checks.find_many([shop.id]) == {}


async def test_changed_domain_is_checked_automatically(
    store: Store, domains: Domains, dns: FakeDns, clock: TestClock
) -> None:
    shop = await domains.add(ADA, "team_a", "shop.test")
    await domains.check_watched()
    first = await domains.status(shop.id)
    assert first.checked_at and first.next_check_at == first.checked_at + 5_000
    await domains.check_watched()  # not yet
    assert (await domains.status(shop.id)).checked_at == first.checked_at
    before = store.setup.current.version
    clock.forward(5_000)
    await domains.check_watched()
    assert ((await domains.status(shop.id)).checked_at or 0) >= first.next_check_at
    assert store.setup.current.version == before  # the setup did not change
    await publish(domains, dns, shop.id)
    clock.forward(5_000)
    await domains.check_watched()
    assert domains.get(shop.id).verified
    assert (await list_entries(store, "team_a"))[0] == ("service", "domain.verified", "shop.test", "")


async def test_regular_check_keeps_the_frequent_checks_after_a_change(domains: Domains, clock: TestClock) -> None:
    """A regular check, every ten minutes, includes domains that were added since the last one."""
    shop = await domains.add(ADA, "team_a", "shop.test")
    await domains.check_watched()
    clock.forward(90_000)
    await domains.check_due()
    after = await domains.status(shop.id)
    assert (after.is_checked_often, after.next_check_at) == (True, (after.checked_at or 0) + 5_000)
    clock.forward(60_000)
    await domains.check_watched()
    later = await domains.status(shop.id)
    assert (later.checked_at or 0) > (after.checked_at or 0)
    assert later.next_check_at == (later.checked_at or 0) + 15_000  # two minutes after the change


async def test_frequent_checks_never_unverify_a_domain(domains: Domains, dns: FakeDns, clock: TestClock) -> None:
    shop = await domains.add(ADA, "team_a", "shop.test")
    await publish(domains, dns, shop.id)
    await domains.check(ADA, shop.id)
    await domains.rotate(ADA, shop.id)
    dns.published.clear()
    for _ in range(5):
        clock.forward(5_000)
        await domains.check_watched()
    assert domains.get(shop.id).verified
    assert domains.get(shop.id).failures == 0
    assert (await domains.status(shop.id)).correct_count == 0


@pytest.mark.both_databases
async def test_domain_is_checked_by_one_process_at_a_time(store: Store, domains: Domains, clock: TestClock) -> None:
    shop = await domains.add(ADA, "team_a", "shop.test")
    now = clock.now()
    assert list(await store.domain_checks.claim(now, now + 1_000, 10)) == [shop.id]
    assert await store.domain_checks.claim(now, now + 1_000, 10) == {}
    assert list(await store.domain_checks.claim(now + 1_000, now + 2_000, 10)) == [shop.id]


@pytest.mark.both_databases
async def test_domain_removed_by_a_setup_file_loses_its_check_result(store: Store, domains: Domains) -> None:
    shop, other = [await domains.add(ADA, "team_a", name) for name in ("shop.test", "other.test")]
    await set_up(store, rows=[to_row("domain", shop.id, None, "team_a")])
    await domains.check_watched()
    assert {*await store.domain_checks.find_many([shop.id, other.id])} == {other.id}
