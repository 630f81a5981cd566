"""Keys of many domains rotate by CNAME while mail flows, and domains move from TXT to CNAME and back (contract 21).

Real: the use cases of domains and their periodic jobs, the store, the DNS checks above the wire, the signed mails, and
dkimpy as the judge. Simulated: the clock, and DNS. Each zone has two servers, the second of which gets every change
late; receivers ask either of them and keep answers, and the absence of names, for the TTL.
"""

from collections import Counter
from collections.abc import Iterable
from random import Random
from types import SimpleNamespace
from typing import Any

import dkim as dkimpy
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rrset
import msgspec
import pytest

from heliograph.app import signing_keys
from heliograph.carriers.contract import OutboundMessage
from heliograph.carriers.email.dns_check import check_records_at, published_ttl
from heliograph.carriers.email.outgoing import MailPreparer
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.delivery.content import EmailContent
from heliograph.domain.ids import ulid
from heliograph.domain.limits import DAY_MS, HOUR_MS, SECOND_MS
from heliograph.domain.mail import dkim
from heliograph.domain.setup.domain_records import Record
from heliograph.domain.setup.records import DkimMethod, Platform, TeamRecord
from heliograph.domain.setup.snapshot import PLATFORM_ID, to_row
from heliograph.encryption import Cipher
from heliograph.manage.domains import RETIRED_KEY_MS, Domains
from heliograph.storage.setup import NewTeam
from heliograph.storage.store import Store
from tests.carriers.test_outgoing import bring_nothing, no_blob
from tests.clocks import TestClock
from tests.manage.conftest import ADA
from tests.proof.size import report, size
from tests.setup_helpers import set_up

pytestmark = pytest.mark.anyio

ZONE = "dkim.heliograph.test"
TEAM = TeamRecord(ref=1, id="team_a", name="team_a")
CIPHER = Cipher(bytes(32))
ROTATE_DAYS = 20
TTL_S = 300
STEP_MS = 6 * HOUR_MS
LAG_STEPS = 2  # the second server of each zone has the records of so many steps ago
RECEIVERS = 3
Records = dict[tuple[str, str], list[str]]


class Dns:
    """The zone of our keys and those of all domains' owners."""

    def __init__(self, clock: TestClock, random: Random) -> None:
        self.clock = clock
        self.random = random
        self.published: list[Records] = [{}]  # by time; the last one is at the first server
        self.caches: list[dict[str, tuple[str | None, int]]] = [{} for _ in range(RECEIVERS)]

    def publish(self, records: Iterable[Record]) -> None:
        """Publish at the first server; the second one gets what was published `LAG_STEPS` calls ago."""
        current: Records = {}
        for record in records:
            current.setdefault((record.name, record.type), []).append(record.value)
        self.published = [*self.published, current][-1 - LAG_STEPS :]

    @property
    def servers(self) -> tuple[Records, Records]:
        return self.published[-1], self.published[0]

    # -- a source for the DNS checks --

    async def query(self, name: dns.name.Name, rdtype: str) -> dns.message.QueryMessage:
        return self._respond(self.servers[0], name, rdtype)

    async def query_all(
        self, name: dns.name.Name, rdtype: str, *, skip_silent: bool = False
    ) -> list[dns.message.QueryMessage]:
        return [self._respond(server, name, rdtype) for server in self.servers]

    @staticmethod
    def _respond(server: Records, name: dns.name.Name, rdtype: str) -> dns.message.QueryMessage:
        response = dns.message.make_response(dns.message.make_query(name, rdtype))
        response.flags |= dns.flags.AA
        text = name.to_text(omit_final_dot=True)
        for kind in (rdtype, "CNAME"):
            if values := server.get((text, kind)):
                texts = [_quoted(value) if kind == "TXT" else f"{value}." for value in values]
                response.answer.append(dns.rrset.from_text(name, TTL_S, "IN", kind, *texts))
                break
        else:
            response.set_rcode(dns.rcode.NXDOMAIN)
        parsed = dns.message.from_wire(response.to_wire())
        assert isinstance(parsed, dns.message.QueryMessage)
        return parsed

    # -- receivers --

    def look_up(self, receiver: int, name: str) -> str | None:
        """Return the key that a receiver's resolver finds; its cache keeps answers of one of the servers."""
        cache, now = self.caches[receiver], self.clock.now()
        for _ in range(2):  # the CNAME and its target
            if name not in cache or cache[name][1] <= now:
                server = self.random.choice(self.servers)
                values = server.get((name, "TXT")) or server.get((name, "CNAME"))
                cache[name] = values[0] if values else None, now + TTL_S * SECOND_MS
            value = cache[name][0]
            if value is None or value.startswith("v="):
                return value
            name = value.rstrip(".")
        return None

    def is_everywhere(self, name: str) -> bool:
        """Return whether all servers of both zones answer a key for this name."""
        targets = [(server.get((name, "CNAME")) or [name])[0].rstrip(".") for server in self.servers]
        return all((target, "TXT") in server for target in targets for server in self.servers)


def _quoted(value: str) -> str:
    return " ".join(f'"{value[start : start + 255]}"' for start in range(0, len(value), 255))


class Operation:
    """The service's jobs, the operator who exports the zone, the owners of the domains, and the mail."""

    def __init__(self, store: Store, clock: TestClock, names: Dns) -> None:
        self.store, self.clock, self.names = store, clock, names
        self.domains = Domains(
            store,
            clock,
            encrypt=CIPHER.encrypt,
            make_key=make_key,
            check_records=lambda records: check_records_at(names, records),
            ownership_key=bytes(32),
            mail_host="mail.heliograph.test",
            find_published_ttl=lambda records: published_ttl(records, servers=names),
        )
        self.mails = MailPreparer(
            ensure_keys=self.domains.ensure_keys,
            signing_keys=signing_keys(store, CIPHER),
            fetch_blob=bring_nothing,
            open_blob=no_blob,
            envelope_key=b"key",
            entropy=clock.random_bytes,
            now=clock.now,
            receives_complaints=True,
        )
        self.received: list[tuple[int, bytes]] = []  # verified again after a day
        self.required_at: dict[Record, int] = {}  # record of an owner's zone → when it was last asked for
        self.selectors: dict[str, set[str]] = {}
        self.verified: Counter[tuple[str, str]] = Counter()
        self.number = 0

    async def step(self) -> None:
        """One step of the clock: jobs, publication, and a mail from each verified domain."""
        self.clock.forward(STEP_MS)
        await self.domains.rotate_due()
        await self.publish()
        for _ in range(3):  # the checks of a changed domain follow each other
            await self.domains.check_watched()
            await self.domains.check_due()
            self.clock.forward((TTL_S + 1) * SECOND_MS)
        for domain in self.store.setup.current.teams[TEAM.id].domains.values():
            if domain.verified:
                await self.send_from(domain.name)
        self.verify_yesterday()

    async def publish(self) -> None:
        """The operator exports the zone; the owners publish what the service asks for, and keep old records a week."""
        now = self.clock.now()
        for domain in self.store.setup.current.teams[TEAM.id].domains.values():
            self.required_at |= dict.fromkeys(await self.domains.required_records(domain.id), now)
        kept = [record for record, at in self.required_at.items() if at > now - RETIRED_KEY_MS]
        zone = [record for record in self.domains.zone() if record.purpose == "dkim"]
        self.names.publish(dict.fromkeys([*zone, *kept]))

    async def send_from(self, domain: str) -> None:
        self.number += 1
        content = EmailContent(
            from_name="Shop", from_address=f"hi@{domain}", to=["ann@example.com"], subject="Hi", text="Hi\n"
        )
        message = OutboundMessage(
            message_id=f"eml_{ulid(self.clock.now(), self.number)}",
            address="ann@example.com",
            content=msgspec.json.encode(content),
            attempt=0,
        )
        mail = b"".join((await self.mails.prepare(message)).chunks())
        self.verify(mail, "at receipt")
        for signature in dkimpy.DKIM(mail).headers:
            if signature[0].lower() == b"dkim-signature":
                tags = dkimpy.util.parse_tag_value(signature[1])
                selector = tags[b"s"].decode()
                self.selectors.setdefault(domain, set()).add(selector)
                assert self.names.is_everywhere(f"{selector}._domainkey.{domain}"), (domain, selector)
        self.received.append((self.clock.now(), mail))

    def verify_yesterday(self) -> None:
        while self.received and self.received[0][0] <= self.clock.now() - DAY_MS:
            self.verify(self.received.pop(0)[1], "a day later")

    def verify(self, mail: bytes, when: str) -> None:
        judge = dkimpy.DKIM(mail)
        receiver = self.names.random.randrange(RECEIVERS)
        for index in range(2):

            def find_key(name: bytes, timeout: int = 5) -> bytes | None:
                value = self.names.look_up(receiver, name.decode().rstrip("."))
                return value.encode() if value else None

            assert judge.verify(idx=index, dnsfunc=find_key), (when, judge.signature_fields)
            self.verified[when, judge.signature_fields[b"a"].decode()] += 1

    def figures(self) -> str:
        return ", ".join(f"{count} {algorithm} {when}" for (when, algorithm), count in sorted(self.verified.items()))


def make_key(algorithm: Any) -> tuple[bytes, str]:
    private = dkim.generate_key(algorithm)
    return private, dkim.public_record(private)


@pytest.fixture
async def operation(store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch) -> Operation:
    monkeypatch.setattr(dkimpy, "time", SimpleNamespace(time=lambda: clock.now() / SECOND_MS))
    platform = Platform(dkim_zone=ZONE, dkim_rotate_days=ROTATE_DAYS)
    rows = [to_row("platform", PLATFORM_ID, platform, None), to_row("team", TEAM.id, TEAM, TEAM.id)]
    await set_up(store, rows=rows, new_teams=[NewTeam(1, 0)])
    return Operation(store, clock, Dns(clock, Random(1)))


async def add_domains(operation: Operation, count: int, method: DkimMethod) -> list[str]:
    names = [f"{method}{number}.test" for number in range(count)]
    for name in names:
        await operation.domains.add(COMMAND_LINE, TEAM.id, name, method=method)
    return names


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_every_mail_verifies_while_keys_rotate(operation: Operation) -> None:
    count, days = size("dkim domains"), size("dkim days")
    names = await add_domains(operation, count, "cname")
    for _ in range(days * DAY_MS // STEP_MS):
        await operation.step()
    assert all(len(operation.selectors[name]) == 4 for name in names)
    report(
        "rotation",
        f"{count} domains, {days} days, rotation every {ROTATE_DAYS} days: {operation.number} mails, "
        f"signatures verified by dkimpy: {operation.figures()}",
    )


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_every_mail_verifies_while_domains_move_between_txt_and_cname(operation: Operation) -> None:
    count = size("dkim domains")
    names = await add_domains(operation, count, "txt")
    methods: tuple[DkimMethod, ...] = ("txt", "cname", "txt", "cname", "txt")
    for method in methods[: 1 + size("dkim moves")]:
        for name in names:
            await operation.domains.add(ADA, TEAM.id, name, method=method)
        for _ in range(16 * DAY_MS // STEP_MS):
            await operation.step()
        used = {domain.dkim for domain in operation.store.setup.current.teams[TEAM.id].domains.values()}
        assert used == {method}
    assert all(operation.selectors[name] >= {"hg1", "hge1"} and len(operation.selectors[name]) > 2 for name in names)
    report("rotation", f"{count} domains moved between TXT and CNAME: {operation.number} mails, {operation.figures()}")
