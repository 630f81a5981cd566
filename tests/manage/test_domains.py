"""Sending domains: who has a name, how many a team may add, and the domain of the platform's own sender."""

from collections.abc import Sequence

import pytest

from heliograph.app import signing_keys
from heliograph.channels.email import dkim
from heliograph.manage.domains import CannotAdd, Domains, NoSuchDomain
from heliograph.rules.setup.domain_records import Record, Verdict
from heliograph.rules.setup.records import Platform, TeamRecord
from heliograph.rules.setup.snapshot import PLATFORM_ID, PLATFORM_TEAM, to_row
from heliograph.sealing import Sealer
from heliograph.storage.setup import NewTeam, SetupChange
from heliograph.storage.store import Store
from tests.clocks import TestClock

pytestmark = pytest.mark.anyio

SEALER = Sealer(bytes(32))
PLATFORM = "sandbox.heliograph.test"
TEAMS = [TeamRecord(ref=number, id=id_, name=id_, domains_max=3) for number, id_ in enumerate(("team_a", "team_b"), 1)]


class Dns:
    """Finds the records of the domains that were published."""

    def __init__(self) -> None:
        self.published: set[str] = set()

    async def ask(self, records: Sequence[Record]) -> list[tuple[Record, Verdict]]:
        found = any(record.value in self.published for record in records if record.purpose == "ownership")
        return [(record, Verdict(ok=found, mend="" if found else "Set it.")) for record in records]


@pytest.fixture
def dns() -> Dns:
    return Dns()


@pytest.fixture
async def domains(store: Store, clock: TestClock, dns: Dns) -> Domains:
    rows, accounts = [to_row("team", team.id, team, team.id) for team in TEAMS], [NewTeam(1, 0), NewTeam(2, 0)]
    await store.setup.change(lambda _, __: SetupChange(rows=rows, new_teams=accounts))
    private = dkim.make_key("ed25519-sha256")
    return Domains(
        store,
        clock,
        seal=SEALER.seal,
        make_key=lambda _: (private, "v=DKIM1"),
        ask=dns.ask,
        ownership_key=bytes(32),
        mail_host="mail.test",
    )


async def publish(domains: Domains, dns: Dns, id_: str) -> None:
    dns.published |= {record.value for record in await domains.records(id_) if record.purpose == "ownership"}


def signers(store: Store, name: str) -> set[str]:
    return {key.selector for key in signing_keys(store, SEALER)(name)}


async def test_a_name_belongs_to_whoever_proves_it(store: Store, domains: Domains, dns: Dns) -> None:
    squatter, owner = [await domains.add(team.id, "shop.test", team.name) for team in TEAMS]
    await domains.records(squatter.id)  # so it has keys, too
    await publish(domains, dns, owner.id)
    assert not (await domains.check(squatter.id)).domain.verified
    assert (await domains.check(owner.id)).domain.verified
    assert domains.find("shop.test").id == owner.id
    assert signers(store, "shop.test") == {key.selector for key in store.setup.current.teams["team_b"].dkim_keys}


async def test_two_cannot_both_prove_it(domains: Domains, dns: Dns) -> None:
    first, second = [await domains.add(team.id, "shop.test", team.name) for team in TEAMS]
    for domain in (first, second):
        await publish(domains, dns, domain.id)
        checked = await domains.check(domain.id)
    assert (domains.find(first.id).verified, domains.find(second.id).verified) == (True, False)
    wrong = {record.purpose: verdict.mend for record, verdict in checked.records if not verdict.ok}
    assert wrong.keys() == {"ownership"}
    assert wrong["ownership"].startswith("Another team here has proved that this domain is theirs.")


async def test_a_name_that_another_team_has_proved_is_refused(domains: Domains, dns: Dns) -> None:
    owner = await domains.add("team_a", "shop.test", "A")
    await publish(domains, dns, owner.id)
    await domains.check(owner.id)
    assert await domains.add("team_a", "shop.test", "A") == domains.find(owner.id)
    with pytest.raises(CannotAdd, match=r"shop\.test is a verified domain of another team here"):
        await domains.add("team_b", "shop.test", "B")


async def test_a_team_adds_as_many_as_it_may(domains: Domains) -> None:
    names = [f"{number}.shop.test" for number in range(3)]
    for name in names * 2:  # one that it has already is not one more
        await domains.add("team_a", name, "A")
    with pytest.raises(CannotAdd, match="has 3 domains, as many as it may"):
        await domains.add("team_a", "more.shop.test", "A")
    await domains.add("team_b", "more.shop.test", "B")


async def test_the_platforms_sender_is_on_a_domain_like_any_other(store: Store, domains: Domains, dns: Dns) -> None:
    squatter = await domains.add("team_a", PLATFORM, "A")
    await domains.records(squatter.id)
    assert [record.purpose for record in await domains.records(PLATFORM)].count("dkim") == 2
    own = domains.find(PLATFORM)
    assert (own.team, own.approved, own.verified) == (PLATFORM_TEAM, True, False)
    assert signers(store, PLATFORM) == {key.selector for key in store.setup.current.platform_keys} != set()
    assert domains.find(PLATFORM).id == own.id
    await domains.rotate(PLATFORM)
    await publish(domains, dns, own.id)
    await domains.check_due()
    assert domains.find(PLATFORM).verified
    assert sorted(key.state for key in store.setup.current.platform_keys) == ["active", "active", "retired", "retired"]


async def test_a_sender_on_a_teams_own_domain_is_signed_with_its_keys(store: Store, domains: Domains, dns: Dns) -> None:
    owner = await domains.add("team_a", "shop.test", "A")
    await publish(domains, dns, owner.id)
    await domains.check(owner.id)
    moved = to_row("platform", PLATFORM_ID, Platform(sender="hello@shop.test"), None)
    await store.setup.change(lambda _, __: SetupChange(rows=[moved]))
    await domains.ensure_keys("shop.test")
    assert domains.find("shop.test").id == owner.id
    assert store.setup.current.platform_domains == {}


async def test_nobodys_name(domains: Domains) -> None:
    await domains.ensure_keys("nobody.test")
    with pytest.raises(NoSuchDomain):
        domains.find("nobody.test")
