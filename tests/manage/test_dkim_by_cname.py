"""DKIM by CNAME: keys in our zone, their rotation, moves between the methods, and a team's own keys."""

from collections.abc import Sequence
from typing import Any

import pytest

from heliograph.domain.limits import DAY_MS
from heliograph.domain.mail import dkim
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.domain_records import Record, Verdict
from heliograph.domain.setup.records import Platform, TeamRecord
from heliograph.domain.setup.snapshot import PLATFORM_ID, to_row
from heliograph.encryption import Cipher
from heliograph.manage.domains import Domains
from heliograph.storage.setup import NewTeam
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.manage.conftest import ADA
from tests.setup_helpers import set_up

pytestmark = pytest.mark.anyio

SEALER = Cipher(bytes(32))
TEAM = TeamRecord(ref=1, id="team_a", name="team_a")

ZONE = "dkim.heliograph.test"


class ZoneDns:
    """Answers with the owner's records, and with those of our zone that the operator has published."""

    def __init__(self) -> None:
        self.owner_publishes = True
        self.zone: set[Record] = set()  # published by all our servers
        self.ttl = 300

    async def ask(self, records: Sequence[Record]) -> list[tuple[Record, Verdict]]:
        def is_found(record: Record) -> bool:
            return record in self.zone if record.name.endswith(ZONE) else self.owner_publishes

        return [
            (record, Verdict(ok=ok, fix="" if ok else "Set it.")) for record in records for ok in [is_found(record)]
        ]

    async def published_ttl(self, records: Sequence[Record]) -> int | None:
        return self.ttl if self.zone.issuperset(records) else None


@pytest.fixture
async def zone_dns(store: Store) -> ZoneDns:
    platform = Platform(dkim_zone=ZONE, dkim_rotate_days=180)
    rows = [to_row("team", TEAM.id, TEAM, TEAM.id)]
    await set_up(store, rows=[to_row("platform", PLATFORM_ID, platform, None), *rows], new_teams=[NewTeam(1, 0)])
    return ZoneDns()


@pytest.fixture
async def zoned(store: Store, clock: TestClock, zone_dns: ZoneDns) -> Domains:
    def make_key(algorithm: Any) -> tuple[bytes, str]:
        return b"key", f"v=DKIM1; k={algorithm[:3]}; p={clock.random_bytes(6).hex()}"

    return Domains(
        store,
        clock,
        encrypt=SEALER.encrypt,
        make_key=make_key,
        check_records=zone_dns.ask,
        ownership_key=bytes(32),
        mail_host="mail.test",
        find_published_ttl=zone_dns.published_ttl,
    )


def signing(store: Store, name: str = "shop.test") -> list[str]:
    setup = store.setup.current
    domain = setup.find_domain(name)
    assert domain
    return sorted(key.selector for key in setup.dkim_keys(domain) if key.state == "active")


def publish(domains: Domains, dns: ZoneDns) -> None:
    dns.zone = set(domains.zone())


async def test_cname_domain_is_verified_when_both_sides_published(
    zoned: Domains, zone_dns: ZoneDns, store: Store
) -> None:
    created = await zoned.add(ADA, "team_a", "shop.test")
    records = [record for record in await zoned.required_records(created.id) if record.purpose == "dkim"]
    assert [(record.type, record.name) for record in records] == [
        ("CNAME", f"{selector}._domainkey.shop.test") for selector in ("hg1", "hg2", "hge1", "hge2")
    ]
    assert all(record.value.endswith(f".{ZONE}") for record in records)
    result = await zoned.check(ADA, created.id)
    assert not result.domain.verified
    wrong = [verdict.fix for _, verdict in result.records if not verdict.ok]
    assert len(wrong) == 2 and all(fix.startswith("Your CNAME record is correct, but") for fix in wrong)
    publish(zoned, zone_dns)
    assert (await zoned.check(ADA, created.id)).domain.verified
    assert signing(store) == ["hg1", "hge1"]


async def test_rotation_uses_new_keys_after_publication_and_ttl(
    zoned: Domains, zone_dns: ZoneDns, store: Store, clock: TestClock
) -> None:
    created = await zoned.add(ADA, "team_a", "shop.test")
    publish(zoned, zone_dns)
    await zoned.check(ADA, created.id)
    clock.forward(179 * DAY_MS)
    await zoned.rotate_due()
    assert len(zoned.zone()) == 3
    clock.forward(2 * DAY_MS)
    await zoned.rotate_due()
    assert len(zoned.zone()) == 5
    assert (await zoned.check(ADA, created.id)).domain.verified  # a pending key is not required
    assert signing(store) == ["hg1", "hge1"]
    publish(zoned, zone_dns)
    await zoned.check(ADA, created.id)
    clock.forward(299_000)
    await zoned.check(ADA, created.id)
    assert signing(store) == ["hg1", "hge1"]
    clock.forward(2_000)
    await zoned.check(ADA, created.id)
    assert signing(store) == ["hg2", "hge2"]
    with pytest.raises(InvalidRequest, match="14 days"):
        await zoned.rotate(ADA, created.id)
    clock.forward(13 * DAY_MS)
    await zoned.check(ADA, created.id)
    assert len(zoned.zone()) == 5
    clock.forward(2 * DAY_MS)
    await zoned.check(ADA, created.id)
    assert len(zoned.zone()) == 3


async def test_move_to_cname_and_back_signs_with_the_old_keys_until_the_new_are_found(
    zoned: Domains, zone_dns: ZoneDns, store: Store, clock: TestClock
) -> None:
    created = await zoned.add(ADA, "team_a", "shop.test", method="txt")
    old = signing(store)
    await zoned.check(ADA, created.id)
    await zoned.add(ADA, "team_a", "shop.test", method="cname")
    await zoned.check(ADA, created.id)
    assert signing(store) == old
    publish(zoned, zone_dns)
    zone_dns.ttl = 0
    await zoned.check(ADA, created.id)
    assert signing(store) == ["hg1", "hge1"]
    zone_dns.owner_publishes = False
    await zoned.add(ADA, "team_a", "shop.test", method="txt")
    await zoned.check(ADA, created.id)
    assert signing(store) == ["hg1", "hge1"]
    zone_dns.owner_publishes = True
    await zoned.check(ADA, created.id)
    assert not {"hg1", "hge1"} & set(signing(store))
    assert len(zoned.zone()) == 3  # still published


PEM = dkim.generate_key("ed25519-sha256").decode()


async def test_own_key_signs_under_its_selector(zoned: Domains, store: Store) -> None:
    await zoned.add(ADA, "team_a", "shop.test", method="txt", private_key=PEM, selector="s1")
    assert signing(store) == ["s1"]
    (record,) = [r for r in await zoned.required_records("shop.test") if r.purpose == "dkim"]
    assert (record.name, record.value) == ("s1._domainkey.shop.test", dkim.public_record(PEM.encode()))


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"method": "cname", "private_key": PEM, "selector": "s1"}, "private_key"),
        ({"method": "txt", "private_key": "-----BEGIN", "selector": "s1"}, "private_key"),
        ({"method": "txt", "private_key": PEM}, "selector"),
        ({"method": "txt", "private_key": PEM, "selector": "S 1"}, "selector"),
        ({"method": "txt", "private_key": PEM, "selector": "hg1"}, "selector"),
        ({"method": "txt", "selector": "s1"}, "private_key"),
    ],
)
async def test_invalid_dkim_options_are_refused(zoned: Domains, given: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await zoned.add(ADA, "team_a", "shop.test", **given)
    assert refused.value.param == param


async def test_cname_without_a_zone_is_refused(zoned: Domains, store: Store) -> None:
    await set_up(store, rows=[to_row("platform", PLATFORM_ID, Platform(), None)])
    with pytest.raises(InvalidRequest) as refused:
        await zoned.add(ADA, "team_a", "shop.test", method="cname")
    assert refused.value.param == "dkim"
